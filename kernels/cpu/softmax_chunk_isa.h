// Exponentials of a chunk of one row of logits, relative to a power of two that belongs to the
// chunk. Chunks are combined by adding exponents: no second rounding, no overflow at any logit.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes_isa.h"
#include "reprise/kernels/float16.h"

namespace reprise::cpu::REPRISE_ISA {

inline constexpr float kMinusInfinity = -__builtin_inff();
// Of a chunk without any finite logit: below every other exponent, and far from overflow.
inline constexpr std::int32_t kNoExponent = -(1 << 28);
// Logits beyond this are taken for it; n below then stays where adding 1.5 * 2^23 rounds.
inline constexpr float kLargestLogit = 1e6f;

// sum over the chunk of exp(logit) = sum * 2^exponent.
struct ChunkSum {
  std::int32_t exponent = kNoExponent;
  float sum = 0;
};

inline Floats clamp_logits(Floats x) {  // a NaN stays one
  x = x < -kLargestLogit ? Floats{} - kLargestLogit : x;
  return x > kLargestLogit ? Floats{} + kLargestLogit : x;
}

// n = x / ln 2, rounded to an integer.
inline Floats whole_powers(Floats x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kRound = 0x1.8p23f;
  return (x * kLog2E + kRound) - kRound;
}

// exp(x) * 2^-exponent, 0 where that is below the normal numbers. x is clamped.
inline Floats scaled_exp(Floats x, std::int32_t exponent) {
  // ln 2 in two parts; n times the first is exact for |n| < 2^15 (Cody and Waite, 1980).
  constexpr float kLn2High = 0x1.63p-1f;
  constexpr float kLn2Low = -2.12194440e-4f;
  const Floats n = whole_powers(x);
  const Floats r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= 0.347
  // Taylor's series to r^7; the rest is below 6e-9.
  Floats p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Ints power = __builtin_convertvector(n, Ints) - exponent;
  const Ints scale_bits = power < -126 ? Ints{} : (power + 127) << 23;
  return p * bits_of<Floats>(scale_bits);
}

// Stores exp(logit) * 2^-exponent for `count` logits, a multiple of kLanes; -inf gives 0. A NaN
// makes the sum a NaN and every output 0. The sum is that of the values before Operand rounds them.
template <class Operand>
inline ChunkSum chunk_exponentials(const float* logits, std::int64_t count,
                                   typename Operand::Element* out) {
  Floats largest = Floats{} + kMinusInfinity;
  Ints is_nan = {};
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Floats x = load_as<Floats>(logits + i);
    largest = x > largest ? x : largest;
    is_nan |= x != x;
  }
  float row_largest = kMinusInfinity;
  std::int32_t any_nan = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    row_largest = largest[lane] > row_largest ? largest[lane] : row_largest;
    any_nan |= is_nan[lane];
  }
  if (any_nan != 0 || row_largest == kMinusInfinity) {
    for (std::int64_t i = 0; i < count; i += kLanes) Operand::store(Floats{}, out + i);
    return any_nan != 0 ? ChunkSum{0, __builtin_nanf("")} : ChunkSum{};
  }
  const auto exponent =
      static_cast<std::int32_t>(whole_powers(clamp_logits(Floats{} + row_largest))[0]);
  Floats sum = {};
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Floats x = load_as<Floats>(logits + i);
    const Floats weights = x == kMinusInfinity ? Floats{} : scaled_exp(clamp_logits(x), exponent);
    sum += weights;
    Operand::store(weights, out + i);
  }
  ChunkSum result{exponent, 0};
  for (int lane = 0; lane < kLanes; ++lane) result.sum += sum[lane];
  return result;
}

// Multiplies by 2^power, power <= 0; what falls below the normal numbers becomes 0.
inline void scale_chunk(std::int32_t power, std::int64_t count, float* values) {
  const std::int32_t bits = power < -126 ? 0 : (power + 127) << 23;
  const float scale = bits_of<float>(bits);
  for (std::int64_t i = 0; i < count; ++i) values[i] *= scale;
}

// On the bits: the exponent of a bf16 number lies where that of an FP32 number does, 16 bits lower.
inline void scale_chunk(std::int32_t power, std::int64_t count, BFloat16* values) {
  const std::int32_t down = power < -254 ? 255 << 7 : -power << 7;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t scaled = values[i].bits - down;  // weights are not negative
    values[i].bits = static_cast<std::uint16_t>(scaled < 1 << 7 ? 0 : scaled);
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
