// NF4 quantisation as bitsandbytes defines it, bit for bit.
#include "reprise/kernels/nf4.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace reprise {
namespace {

// Below this an absmax counts as zero; bitsandbytes' own threshold.
constexpr float kSmallestAbsmax = 1e-38f;

// Midpoints between neighbouring codebook entries, in FP32 as the reference computes them.
constexpr std::array<float, 15> make_midpoints() {
  std::array<float, 15> midpoints{};
  for (std::size_t i = 0; i < midpoints.size(); ++i) {
    midpoints[i] = (kNf4Codebook[i] + kNf4Codebook[i + 1]) / 2.0f;
  }
  return midpoints;
}
constexpr std::array<float, 15> kMidpoints = make_midpoints();

// Number of midpoints below each scaled value. Branch-free, one midpoint at a time over the whole
// block, so that the compiler makes vectors of it.
void codes_of(const float* scaled, std::int64_t count, std::int32_t* codes) {
  std::fill_n(codes, count, 0);
  for (const float midpoint : kMidpoints) {
    for (std::int64_t i = 0; i < count; ++i) codes[i] += scaled[i] > midpoint ? 1 : 0;
  }
}

float absmax_of(const float* values, std::int64_t count) {
  float absmax = 0;
  for (std::int64_t i = 0; i < count; ++i) absmax = std::max(absmax, std::fabs(values[i]));
  return absmax;
}

// Fills `scaled` with values / absmax in [-1, 1] and returns the absmax that is stored.
float scale_block(const float* values, std::int64_t count, std::int64_t block_size, float* scaled) {
  const float absmax = absmax_of(values, count);
  if (count < block_size) {
    // A short last block divides, and its absmax is never zero.
    const float divisor = std::max(absmax, kSmallestAbsmax);
    for (std::int64_t i = 0; i < count; ++i) scaled[i] = values[i] / divisor;
    return divisor;
  }
  if (absmax < kSmallestAbsmax) {
    std::fill_n(scaled, count, 0.0f);
    return absmax;
  }
  const float reciprocal = 1.0f / absmax;
  for (std::int64_t i = 0; i < count; ++i) {
    scaled[i] = std::clamp(values[i] * reciprocal, -1.0f, 1.0f);
  }
  return absmax;
}

}  // namespace

std::int64_t first_not_finite(const float* values, std::int64_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  constexpr std::int64_t kChunk = 1024;  // long enough for vectors, short enough to stop early
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    const std::int64_t end = std::min(count, begin + kChunk);
    std::int32_t bad = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      bad |= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent ? 1 : 0;
    }
    if (bad == 0) continue;
    for (std::int64_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) return i;
    }
  }
  return -1;
}

void quantize_nf4(const float* values, std::int64_t count, std::int64_t block_size,
                  NibbleOrder order, std::uint8_t* packed, float* absmax) {
  require(block_size > 0 && block_size <= 4096 && block_size % 2 == 0,
          "block_size must be even and at most 4096");
  std::array<float, 4096> scaled;
  std::array<std::int32_t, 4096> codes;
  for (std::int64_t begin = 0; begin < count; begin += block_size) {
    const std::int64_t size = std::min(block_size, count - begin);
    absmax[begin / block_size] = scale_block(values + begin, size, block_size, scaled.data());
    codes_of(scaled.data(), size, codes.data());
    if (size % 2 != 0) codes[static_cast<std::size_t>(size)] = kNf4ZeroCode;  // padding
    std::uint8_t* out = packed + begin / 2;
    for (std::int64_t i = 0; i < size; i += 2) {
      const auto first = static_cast<std::uint32_t>(codes[static_cast<std::size_t>(i)]);
      const auto second = static_cast<std::uint32_t>(codes[static_cast<std::size_t>(i + 1)]);
      out[i / 2] = static_cast<std::uint8_t>(
          order == NibbleOrder::kHighFirst ? (first << 4) | second : (second << 4) | first);
    }
  }
}

void dequantize_nf4(const Nf4View& weight, float* out) {
  for (std::int64_t e = 0; e < weight.count(); ++e) {
    const int code = nf4_code(weight.packed, e, weight.order);
    out[e] = kNf4Codebook[static_cast<std::size_t>(code)] * weight.absmax[e / weight.block_size];
  }
}

void expand_nested_absmax(const NestedAbsmax& nested, float* absmax) {
  for (std::int64_t i = 0; i < nested.blocks; ++i) {
    const float scaled =
        nested.map[nested.codes[i]] * nested.nested_absmax[i / nested.nested_block_size];
    absmax[i] = scaled + nested.offset;
  }
}

}  // namespace reprise
