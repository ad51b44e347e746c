// FP32 to IEEE binary16, to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "reprise/kernels/float16.h"

namespace reprise::nf4_tool {

constexpr Float16 round_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const auto signed_half = [sign](std::uint32_t half) {
    return Float16{static_cast<std::uint16_t>(sign | half)};
  };
  if (magnitude > 0x7f800000u) return signed_half(0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return signed_half(0x7c00u);  // from 65520 on: infinity
  if (magnitude < 0x33000001u) return signed_half(0);         // up to 2^-25: the tie goes to 0
  // The 24-bit significand, shifted right until one unit is one unit of the result: 2^-24 below the
  // smallest normal number 2^-14, else 13 places less than FP32's.
  const bool subnormal = magnitude < 0x38800000u;
  const std::uint32_t shift = subnormal ? 126u - (magnitude >> 23) : 13u;
  const std::uint32_t significand =
      subnormal ? (magnitude & 0x7fffffu) | 0x800000u : magnitude - (112u << 23);
  const std::uint32_t half = significand >> shift;
  const std::uint32_t rest = significand & ((1u << shift) - 1);
  const std::uint32_t middle = 1u << (shift - 1);
  // A carry out of the significand raises the exponent, which is the right result.
  const bool up = rest > middle || (rest == middle && (half & 1u) != 0);
  return signed_half(half + (up ? 1u : 0u));
}

}  // namespace reprise::nf4_tool
