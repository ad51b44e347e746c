// The two 16-bit floating-point storage types. Conversions round to nearest even and keep NaN a
// NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace reprise {

// bfloat16: the upper half of an IEEE binary32.
struct BFloat16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

constexpr BFloat16 to_bfloat16(float value) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) {  // NaN: keep it quiet, never round it to infinity
    return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  }
  const std::uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
  return {static_cast<std::uint16_t>(rounded >> 16)};
}

// IEEE binary16.
struct Float16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(Float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  std::uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: shift the leading one up to the implicit position, lowering the exponent each time.
  std::uint32_t shifted_exponent = 113;
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    --shifted_exponent;
  }
  return std::bit_cast<float>(sign | (shifted_exponent << 23) | ((mantissa & 0x3ffu) << 13));
}

}  // namespace reprise
