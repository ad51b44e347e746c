// Panels of a dense row-major weight for the vocabulary head: 64 columns of the product, laid out
// along its reduction.
#pragma once

#include <cstdint>

#include "reprise/kernels/float16.h"
#include "reprise/kernels/view.h"

namespace reprise::cpu::REPRISE_ISA {

inline constexpr std::int64_t kPanel = 64;

inline void convert_element(float from, float& to) { to = from; }
inline void convert_element(float from, BFloat16& to) { to = to_bfloat16(from); }
inline void convert_element(BFloat16 from, float& to) { to = to_float(from); }
inline void convert_element(BFloat16 from, BFloat16& to) { to = from; }

// Elements of a row of `from`, in the type of `to`.
template <class T>
inline void convert_elements(const ConstView& from, std::int64_t first, std::int64_t count, T* to) {
  if (from.dtype == DType::kBF16) {
    const BFloat16* const values = from.as<BFloat16>() + first;
    for (std::int64_t i = 0; i < count; ++i) convert_element(values[i], to[i]);
  } else {
    const float* const values = from.as<float>() + first;
    for (std::int64_t i = 0; i < count; ++i) convert_element(values[i], to[i]);
  }
}

// panel[k][j] = weight[row + j][k] for k < C: the product's columns are rows of the weight.
template <class T>
inline void pack_rows_as_columns(const ConstView& weight, std::int64_t row, std::int64_t width,
                                 T* panel) {
  const std::int64_t c = weight.dims[1];
  for (std::int64_t k = 0; k < c; ++k) {
    for (std::int64_t j = 0; j < width; ++j) {
      convert_elements(weight, (row + j) * c + k, 1, panel + k * kPanel + j);
    }
    for (std::int64_t j = width; j < kPanel; ++j) panel[k * kPanel + j] = T{};
  }
}

// panel[k][j] = weight[row + k][column + j] for k < depth; zeros from `rows` on.
template <class T>
inline void pack_columns(const ConstView& weight, std::int64_t row, std::int64_t rows,
                         std::int64_t column, std::int64_t width, std::int64_t depth, T* panel) {
  for (std::int64_t k = 0; k < depth; ++k) {
    T* const to = panel + k * kPanel;
    const std::int64_t filled = k < rows ? width : 0;
    convert_elements(weight, (row + k) * weight.dims[1] + column, filled, to);
    for (std::int64_t j = filled; j < kPanel; ++j) to[j] = T{};
  }
}

// c[rows, width] (+)= a[rows, depth] . panel
template <class T>
inline void multiply_panel(const T* a, std::int64_t lda, std::int64_t rows, const T* panel,
                           std::int64_t depth, float* c, std::int64_t ldc, std::int64_t width,
                           OutputMode mode) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float sums[kPanel] = {};
    for (std::int64_t k = 0; k < depth; ++k) {
      float x;
      convert_element(a[r * lda + k], x);
      for (std::int64_t j = 0; j < kPanel; ++j) {
        float w;
        convert_element(panel[k * kPanel + j], w);
        sums[j] += x * w;
      }
    }
    float* const out = c + r * ldc;
    for (std::int64_t j = 0; j < width; ++j) {
      out[j] = mode == OutputMode::kAccumulate ? out[j] + sums[j] : sums[j];
    }
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
