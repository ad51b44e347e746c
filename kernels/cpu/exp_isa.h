// exp of a vector: 2^n * p(r) with r within half of ln 2, p a degree-6 polynomial; relative error
// below 2e-7. Below the smallest normal number the result is exactly 0, above the largest float it
// is infinite.
#pragma once

#include "kernels/cpu/lanes_isa.h"

namespace reprise::cpu::REPRISE_ISA {

inline Floats exponential(Floats x) {
  constexpr float kLog2E = 1.44269504088896341f;
  // ln 2 in two parts, so that n * high is exact.
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kLowest = -87.33654f, kHighest = 88.72283f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Floats clamped = x < kLowest ? Floats{} + kLowest : x > kHighest ? Floats{} + kHighest : x;
  const Floats shifted = multiply_add(clamped, Floats{} + kLog2E, Floats{} + kRound);
  const Floats n = shifted - kRound;
  Floats r = multiply_add(n, Floats{} - kLn2High, clamped);
  r = multiply_add(n, Floats{} - kLn2Low, r);
  // Minimax coefficients of (exp(r) - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2].
  Floats p = Floats{} + 1.9875691500e-4f;
  p = multiply_add(p, r, Floats{} + 1.3981999507e-3f);
  p = multiply_add(p, r, Floats{} + 8.3334519073e-3f);
  p = multiply_add(p, r, Floats{} + 4.1665795894e-2f);
  p = multiply_add(p, r, Floats{} + 1.6666665459e-1f);
  p = multiply_add(p, r, Floats{} + 5.0000001201e-1f);
  p = multiply_add(p, r * r, r + 1.0f);
  // n is at most 128, so 2^n is made of two factors that are both representable.
  const Ints exponent = __builtin_convertvector(n, Ints);
  const Ints half = exponent >> 1;
  const Floats first = bits_of<Floats>((half + 127) << 23);
  const Floats second = bits_of<Floats>((exponent - half + 127) << 23);
  const Floats result = p * first * second;
  return x < kLowest ? Floats{} : x > kHighest ? Floats{} + __builtin_inff() : x != x ? x : result;
}

inline Floats sigmoid(Floats x) { return 1.0f / (1.0f + exponential(-x)); }

inline float sum_of(Floats values) {
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += values[lane];
  return sum;
}

inline float largest_of(Floats values) {
  float largest = values[0];
  for (int lane = 1; lane < kLanes; ++lane)
    largest = values[lane] > largest ? values[lane] : largest;
  return largest;
}

}  // namespace reprise::cpu::REPRISE_ISA
