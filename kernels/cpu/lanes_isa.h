// The widest vectors of an instruction set as the compiler's vector types, and what those lack:
// memory, fused multiply-add, conversions to and from bf16, transposition.
#pragma once

#include <cstdint>

#include "reprise/kernels/float16.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace reprise::cpu::REPRISE_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = std::int32_t __attribute__((vector_size(4 * kLanes)));
using Halves = std::uint16_t __attribute__((vector_size(2 * kLanes)));

template <class Vector>
inline Vector load_as(const void* from) {
  Vector values;
  __builtin_memcpy(&values, from, sizeof(values));
  return values;
}
template <class Vector>
inline void store_as(Vector values, void* to) {
  __builtin_memcpy(to, &values, sizeof(values));
}

template <class To, class From>
inline To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

inline Floats widen(Halves values) {
  return bits_of<Floats>(__builtin_convertvector(values, Ints) << 16);
}

// Rounded to nearest even: the upper half of each lane is the bf16 number. A NaN stays one.
inline Ints rounded_bits(Floats values) {
  using Unsigned = std::uint32_t __attribute__((vector_size(4 * kLanes)));  // wraps around
  const Unsigned bits = bits_of<Unsigned>(values);
  const Unsigned rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return bits_of<Ints>(values != values ? bits | 0x400000u : rounded);
}
inline Halves narrow(Floats values) {
  return __builtin_convertvector(rounded_bits(values) >> 16, Halves);
}
inline Floats round_to_bf16(Floats values) {
  return bits_of<Floats>(rounded_bits(values) & ~0xffff);
}

// Lane by lane, `first` in the lower and `second` in the upper half.
inline Ints bf16_pairs(Floats first, Floats second) {
  return ((rounded_bits(first) >> 16) & 0xffff) | (rounded_bits(second) & ~0xffff);
}

// Swaps ever smaller off-diagonal blocks (Eklundh, 1972).
inline void transpose(Ints (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
    Ints upper, lower;
    for (int lane = 0; lane < kLanes; ++lane) {
      upper[lane] = (lane & half) == 0 ? lane : kLanes + lane - half;
      lower[lane] = (lane & half) == 0 ? lane + half : kLanes + lane;
    }
#pragma GCC unroll 16
    for (int row = 0; row < kLanes; ++row) {
      if ((row & half) != 0) continue;
      const Ints a = rows[row];
      const Ints b = rows[row + half];
      rows[row] = __builtin_shuffle(a, b, upper);
      rows[row + half] = __builtin_shuffle(a, b, lower);
    }
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
