// Dequantisation of whole matrices and conversions between FP32 and bf16, at the speed of a copy.
// Rounding is done with integers in every set: the bf16 conversion instruction flushes subnormals.
#include "kernels/cpu/operand_kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace reprise::cpu::REPRISE_ISA {
namespace {

#if defined(__AVX512F__)

constexpr std::int64_t kLanes = 16;
using Floats = __m512;

Floats load(const float* from) { return _mm512_loadu_ps(from); }
void store(Floats values, float* to) { _mm512_storeu_ps(to, values); }

void store(Floats values, BFloat16* to) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
}

Floats load(const BFloat16* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// The codes of 16 elements that start at an even one, looked up and scaled.
Floats decode(const std::uint8_t* packed, NibbleOrder order, float scale) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(packed));
  const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  const __m128i codes = order == NibbleOrder::kHighFirst ? _mm_unpacklo_epi8(high, low)
                                                         : _mm_unpacklo_epi8(low, high);
  const __m512 codebook = _mm512_loadu_ps(kNf4Codebook.data());
  return _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), codebook),
                       _mm512_set1_ps(scale));
}

#elif defined(__AVX2__)

constexpr std::int64_t kLanes = 8;
using Floats = __m256;

Floats load(const float* from) { return _mm256_loadu_ps(from); }
void store(Floats values, float* to) { _mm256_storeu_ps(to, values); }

void store(Floats values, BFloat16* to) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i kept = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1)));
}

Floats load(const BFloat16* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// The codes of 8 elements that start at an even one. Each half of the codebook is one permute; the
// top bit of the code chooses between them.
Floats decode(const std::uint8_t* packed, NibbleOrder order, float scale) {
  std::int32_t word = 0;
  __builtin_memcpy(&word, packed, sizeof(word));
  const __m128i bytes = _mm_cvtsi32_si128(word);
  const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  const __m128i codes = order == NibbleOrder::kHighFirst ? _mm_unpacklo_epi8(high, low)
                                                         : _mm_unpacklo_epi8(low, high);
  const __m256i index = _mm256_cvtepu8_epi32(codes);
  const __m256 lower = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kNf4Codebook.data()), index);
  const __m256 upper = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kNf4Codebook.data() + 8), index);
  const __m256 top = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
  return _mm256_mul_ps(_mm256_blendv_ps(lower, upper, top), _mm256_set1_ps(scale));
}

#else

constexpr std::int64_t kLanes = 2;
struct Floats {
  float values[kLanes];
};

void store_one(float value, float* to) { *to = value; }
void store_one(float value, BFloat16* to) { *to = to_bfloat16(value); }

Floats load(const float* from) { return {{from[0], from[1]}}; }
Floats load(const BFloat16* from) { return {{to_float(from[0]), to_float(from[1])}}; }
template <class Out>
void store(Floats pair, Out* to) {
  store_one(pair.values[0], to);
  store_one(pair.values[1], to + 1);
}
Floats decode(const std::uint8_t* packed, NibbleOrder order, float scale) {
  return {{kNf4Codebook[static_cast<std::size_t>(nf4_code(packed, 0, order))] * scale,
           kNf4Codebook[static_cast<std::size_t>(nf4_code(packed, 1, order))] * scale}};
}

#endif

template <class In, class Out>
void convert(const In* values, std::int64_t count, Out* out) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(load(values + i), out + i);
  if (i == count) return;
  In last_in[kLanes] = {};
  Out last_out[kLanes];
  for (std::int64_t j = i; j < count; ++j) last_in[j - i] = values[j];
  store(load(last_in), last_out);
  for (std::int64_t j = i; j < count; ++j) out[j] = last_out[j - i];
}

template <class Out>
void dequantize(const Nf4View& weight, std::int64_t begin, std::int64_t end, Out* out) {
  for (std::int64_t block = begin; block < end; block += weight.block_size) {
    const float scale = weight.absmax[block / weight.block_size];
    const std::int64_t stop = block + weight.block_size < end ? block + weight.block_size : end;
    std::int64_t e = block;
    for (; e + kLanes <= stop; e += kLanes) {
      store(decode(weight.packed + e / 2, weight.order, scale), out + (e - begin));
    }
    if (e == stop) continue;
    std::uint8_t last_packed[kLanes / 2] = {};  // a vector's load would run past the buffer
    Out last_out[kLanes];
    for (std::int64_t j = e; j < stop; j += 2) last_packed[(j - e) / 2] = weight.packed[j / 2];
    store(decode(last_packed, weight.order, scale), last_out);
    for (std::int64_t j = e; j < stop; ++j) out[j - begin] = last_out[j - e];
  }
}

}  // namespace

const OperandKernels kOperandKernels = {
    .dequantize_f32 = dequantize<float>,
    .dequantize_bf16 = dequantize<BFloat16>,
    .narrow = convert<float, BFloat16>,
    .widen = convert<BFloat16, float>,
};

}  // namespace reprise::cpu::REPRISE_ISA
