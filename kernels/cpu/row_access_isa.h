// Reading and writing kLanes neighbouring elements of FP32 or bf16 memory as FP32, and the last few
// of a row.
#pragma once

#include "kernels/cpu/lanes_isa.h"
#include "reprise/kernels/view.h"

namespace reprise::cpu::REPRISE_ISA {

inline Floats read(const float* from) { return load_as<Floats>(from); }
inline Floats read(const BFloat16* from) { return widen(load_as<Halves>(from)); }
inline void write(Floats values, float* to) { store_as(values, to); }
inline void write(Floats values, BFloat16* to) { store_as(narrow(values), to); }

inline float read_one(const float* from) { return *from; }
inline float read_one(const BFloat16* from) { return to_float(*from); }
inline void write_one(float value, float* to) { *to = value; }
inline void write_one(float value, BFloat16* to) { *to = to_bfloat16(value); }

// The first `count` of the lanes; the others are 0.
template <class T>
inline Floats read_some(const T* from, std::int64_t count) {
  Floats values{};
  for (std::int64_t lane = 0; lane < count; ++lane) values[lane] = read_one(from + lane);
  return values;
}
template <class T>
inline void write_some(Floats values, T* to, std::int64_t count) {
  for (std::int64_t lane = 0; lane < count; ++lane) write_one(values[lane], to + lane);
}

// Calls body(index, count) for every kLanes elements of [begin, end); count is below kLanes only
// for the last call.
template <class Body>
inline void for_lanes(std::int64_t begin, std::int64_t end, Body&& body) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, std::int64_t{kLanes});
  if (i < end) body(i, end - i);
}
template <class T>
inline Floats read(const T* from, std::int64_t count) {
  return count == kLanes ? read(from) : read_some(from, count);
}
template <class T>
inline void write(Floats values, T* to, std::int64_t count) {
  if (count == kLanes) {
    write(values, to);
  } else {
    write_some(values, to, count);
  }
}

// Calls body(pointer) with the element type of a float view.
template <class Body>
inline void with_elements(const ConstView& view, Body&& body) {
  if (view.dtype == DType::kBF16) {
    body(view.as<BFloat16>());
  } else {
    body(view.as<float>());
  }
}
template <class Body>
inline void with_elements(const View& view, Body&& body) {
  if (view.dtype == DType::kBF16) {
    body(view.as<BFloat16>());
  } else {
    body(view.as<float>());
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
