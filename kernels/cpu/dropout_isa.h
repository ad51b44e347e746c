// The dropout factors of neighbouring elements, a vector of Philox blocks at a time: the same bits
// as dropout_factor() gives one by one (reprise/kernels/dropout.h).
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes_isa.h"
#include "reprise/kernels/dropout.h"

namespace reprise::cpu::REPRISE_ISA {

namespace dropout_detail {

inline constexpr std::int64_t kBlockDraws = 4;  // of one Philox counter
inline constexpr std::int64_t kBlocks = kLanes / 2;
inline constexpr std::int64_t kDraws = kBlocks * kBlockDraws;

// A 32-bit number in the lower half of each lane; whatever the upper half holds is ignored.
using Words = std::uint64_t __attribute__((vector_size(4 * kLanes)));

inline Words multiply_lower(Words a, std::uint32_t b) {
  const Words factor = Words{} + b;
#if defined(__AVX512F__)
  return bits_of<Words>(_mm512_mul_epu32(bits_of<__m512i>(a), bits_of<__m512i>(factor)));
#elif defined(__AVX2__)
  return bits_of<Words>(_mm256_mul_epu32(bits_of<__m256i>(a), bits_of<__m256i>(factor)));
#else
  return (a & 0xffffffffu) * factor;
#endif
}

inline Floats factors_of(Ints draws, const Dropout& dropout) {
  using Unsigned = std::uint32_t __attribute__((vector_size(4 * kLanes)));
  const Ints upper = bits_of<Ints>(bits_of<Unsigned>(draws) >> 8);
  const Floats uniform = __builtin_convertvector(upper, Floats) * 0x1p-24f;
  return uniform < dropout.probability ? Floats{} : Floats{} + 1.0f / (1.0f - dropout.probability);
}

// Factors of the elements from `index`, a multiple of kBlockDraws.
inline void whole_blocks(const Dropout& dropout, std::int64_t index, float (&to)[kDraws]) {
  const StepParams& p = *dropout.params;
  Words block{};
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    block[i] = static_cast<std::uint64_t>(index / kBlockDraws + i);
  }
  Words counter[4] = {block, (block >> 32) ^ (dropout.site << 8),
                      Words{} + static_cast<std::uint32_t>(p.step),
                      Words{} + static_cast<std::uint32_t>(p.micro_step)};
  std::uint32_t key[2] = {static_cast<std::uint32_t>(p.seed),
                          static_cast<std::uint32_t>(p.seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const Words p0 = multiply_lower(counter[0], 0xD2511F53u);
    const Words p1 = multiply_lower(counter[2], 0xCD9E8D57u);
    counter[0] = (p1 >> 32) ^ counter[1] ^ key[0];
    counter[1] = p1;
    counter[2] = (p0 >> 32) ^ counter[3] ^ key[1];
    counter[3] = p0;
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const Words even = (counter[0] & 0xffffffffu) | (counter[1] << 32);
  const Words odd = (counter[2] & 0xffffffffu) | (counter[3] << 32);
  Words low{}, high{};
  for (int i = 0; i < static_cast<int>(kBlocks); ++i) {
    low[i] = static_cast<std::uint64_t>(i / 2 + i % 2 * kBlocks);
    high[i] = low[i] + kBlocks / 2;
  }
  store_as(factors_of(bits_of<Ints>(__builtin_shuffle(even, odd, low)), dropout), to);
  store_as(factors_of(bits_of<Ints>(__builtin_shuffle(even, odd, high)), dropout), to + kLanes);
}

}  // namespace dropout_detail

// Calls use(i, factors, count) for pieces of [0, count): factors[j] belongs to element
// index + i + j. dropout.probability is not 0.
template <class Use>
inline void for_dropout_factors(const Dropout& dropout, std::int64_t index, std::int64_t count,
                                Use&& use) {
  using namespace dropout_detail;
  float factors[kDraws];
  std::int64_t skip = index % kBlockDraws;
  for (std::int64_t i = 0; i < count;) {
    whole_blocks(dropout, index + i - skip, factors);
    const std::int64_t left = count - i, made = kDraws - skip;
    const std::int64_t piece = left < made ? left : made;
    use(i, factors + skip, piece);
    i += piece;
    skip = 0;
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
