// NF4: sixteen values, one FP32 scale (absmax) per block of consecutive weights.
// Source: Dettmers et al., "QLoRA" (2023), and the storage of bitsandbytes 0.50.
//
// A weight W[N, K] is flattened row-major; element e = n * K + k lies in block e / block_size, and
// blocks run across row ends when K is no multiple of block_size. The last block may be short.
// Byte e / 2 of `packed` holds two elements; NibbleOrder says which one is in which half.
// The value of an element is codebook[nibble] * absmax[e / block_size], one FP32 product.
#pragma once

#include <array>
#include <cstdint>

#include "reprise/kernels/view.h"

namespace reprise {

inline constexpr std::array<float, 16> kNf4Codebook = {-1.0f,
                                                       -0.6961928009986877f,
                                                       -0.5250730514526367f,
                                                       -0.39491748809814453f,
                                                       -0.28444138169288635f,
                                                       -0.18477343022823334f,
                                                       -0.09105003625154495f,
                                                       0.0f,
                                                       0.07958029955625534f,
                                                       0.16093020141124725f,
                                                       0.24611230194568634f,
                                                       0.33791524171829224f,
                                                       0.44070982933044434f,
                                                       0.5626170039176941f,
                                                       0.7229568362236023f,
                                                       1.0f};

inline constexpr int kNf4ZeroCode = 7;  // codebook[7] == 0

// Which element of a byte comes first. bitsandbytes: the even element in the high nibble. Other
// NF4 kernels (trueno's among them) put it in the low nibble. Nothing in the bytes tells the two
// apart, so every buffer carries it and there is no default.
enum class NibbleOrder : std::uint8_t { kHighFirst, kLowFirst };

struct Nf4View {
  const std::uint8_t* packed = nullptr;  // ceil(N * K / 2) bytes
  const float* absmax = nullptr;         // ceil(N * K / block_size) scales
  std::int64_t n = 0;                    // rows: out-features
  std::int64_t k = 0;                    // columns: in-features
  std::int64_t block_size = 64;          // a power of two, 64 ... 4096
  NibbleOrder order;

  std::int64_t count() const { return n * k; }
};

constexpr std::int64_t nf4_packed_bytes(std::int64_t count) { return (count + 1) / 2; }
constexpr std::int64_t nf4_blocks(std::int64_t count, std::int64_t block_size) {
  return (count + block_size - 1) / block_size;
}

// Code of element `e`.
inline int nf4_code(const std::uint8_t* packed, std::int64_t e, NibbleOrder order) {
  const std::uint8_t byte = packed[e / 2];
  const bool high = ((e & 1) == 0) == (order == NibbleOrder::kHighFirst);
  return high ? byte >> 4 : byte & 15;
}

// Index of the first NaN or infinity in `values`, or -1.
std::int64_t first_not_finite(const float* values, std::int64_t count);

// Quantises `count` finite FP32 weights, bit-exactly as bitsandbytes does: s = x * (1 / absmax),
// clamped to [-1, 1]; the code is the number of midpoints between neighbouring codebook entries
// that lie below s, so that a tie takes the lower code. A block whose absmax is below 1e-38 gets
// code 7 throughout; a short last block divides instead of multiplying by the reciprocal, and its
// absmax is at least 1e-38; an odd count pads with code 7.
// `packed`: nf4_packed_bytes(count); `absmax`: nf4_blocks(count, block_size).
void quantize_nf4(const float* values, std::int64_t count, std::int64_t block_size,
                  NibbleOrder order, std::uint8_t* packed, float* absmax);

// Writes codebook[code] * absmax as FP32; `out` holds weight.count() values.
void dequantize_nf4(const Nf4View& weight, float* out);

// Double quantisation as bitsandbytes stores it: absmax[i] = map[codes[i]] * nested_absmax[i / 256]
// + offset, in FP32 (product rounded, then the sum).
struct NestedAbsmax {
  const std::uint8_t* codes = nullptr;   // [blocks]
  const float* map = nullptr;            // [256]
  const float* nested_absmax = nullptr;  // [ceil(blocks / nested_block_size)]
  std::int64_t blocks = 0;
  std::int64_t nested_block_size = 256;
  float offset = 0;
};
void expand_nested_absmax(const NestedAbsmax& nested, float* absmax);

}  // namespace reprise
