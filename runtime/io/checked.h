// Arithmetic on sizes that come out of a file. A file may hold any number, so every sum and product
// of such numbers goes through here and a result that leaves [0, 2^63) is bad input, never a wrap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reprise/kernels/error.h"

namespace reprise {

// Nothing when an operand is negative or the result does not fit.
constexpr std::optional<std::int64_t> try_add(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

constexpr std::optional<std::int64_t> try_mul(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// The same, throwing InputError that starts with `where`: file and tensor or key.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b, std::string_view where) {
  if (const auto result = try_add(a, b)) return *result;
  throw InputError(std::string(where) + ": the size " + std::to_string(a) + " + " +
                   std::to_string(b) + " is out of range");
}

inline std::int64_t checked_mul(std::int64_t a, std::int64_t b, std::string_view where) {
  if (const auto result = try_mul(a, b)) return *result;
  throw InputError(std::string(where) + ": the size " + std::to_string(a) + " * " +
                   std::to_string(b) + " is out of range");
}

// Rounds up to a multiple of `alignment`, which must be positive.
inline std::int64_t checked_align(std::int64_t a, std::int64_t alignment, std::string_view where) {
  if (alignment <= 0) {
    throw InputError(std::string(where) + ": alignment " + std::to_string(alignment));
  }
  const std::int64_t rest = a % alignment;
  return rest == 0 ? checked_add(a, 0, where) : checked_add(a, alignment - rest, where);
}

// A 64-bit unsigned number of a file as a size.
inline std::int64_t checked_size(std::uint64_t value, std::string_view where) {
  if (value > static_cast<std::uint64_t>(INT64_MAX)) {
    throw InputError(std::string(where) + ": " + std::to_string(value) + " is out of range");
  }
  return static_cast<std::int64_t>(value);
}

}  // namespace reprise
