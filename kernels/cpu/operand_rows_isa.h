// The left operand of a panel product: rows of an activation matrix in the form that products take.
// Used where it lies if that is its form already, otherwise converted into scratch, once per call.
#pragma once

#include <type_traits>

#include "kernels/cpu/dense_panel_isa.h"
#include "kernels/cpu/dropout_isa.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::cpu::REPRISE_ISA {

// Rows of a matrix as an operand; `stride` counts elements.
template <class Operand>
struct OperandRows {
  const typename Operand::Element* data = nullptr;
  std::int64_t stride = 0;
  const typename Operand::Element* row(std::int64_t r) const { return data + r * stride; }
};

template <class Operand>
inline bool lies_ready(const ConstView& matrix) {
  if constexpr (std::is_same_v<Operand, Fp32Operand>) {
    return matrix.dtype == DType::kF32;
  } else if constexpr (Operand::kStep == 2) {
    return matrix.dtype == DType::kBF16 && matrix.dims[1] % 2 == 0;
  } else {
    return false;
  }
}

// Bytes that operand_rows needs for [rows, columns], 64-byte aligned.
template <class Operand>
inline std::int64_t operand_bytes(std::int64_t rows, std::int64_t columns) {
  const auto element = static_cast<std::int64_t>(sizeof(typename Operand::Element));
  return (rows * whole_words<Operand>(columns) * element + 63) / 64 * 64;
}

namespace rows_detail {

// Which elements of a matrix, counted row by row.
struct Elements {
  std::int64_t first, count;
};

// x * factor, rounded once. Elements beyond the row, up to whole words, become zeros.
template <class Operand, class From>
inline void convert_dropped_row(const From* from, const Elements& elements, const Dropout& dropout,
                                typename Operand::Element* to) {
  for_dropout_factors(dropout, elements.first, elements.count,
                      [&](std::int64_t i, const float* factors, std::int64_t count) {
                        std::int64_t j = 0;
                        for (; j + kLanes <= count; j += kLanes) {
                          Operand::store(read(from + i + j) * load_as<Floats>(factors + j),
                                         to + i + j);
                        }
                        for (; j < count; ++j) {
                          to[i + j] = Operand::from(read_one(from + i + j) * factors[j]);
                        }
                      });
  for (std::int64_t i = elements.count; i < whole_words<Operand>(elements.count); ++i) {
    to[i] = Operand::from(0.0f);
  }
}

}  // namespace rows_detail

template <class Operand>
inline OperandRows<Operand> operand_rows(const ConstView& matrix, void* scratch, ThreadPool& pool) {
  using Element = typename Operand::Element;
  if (lies_ready<Operand>(matrix)) return {matrix.as<Element>(), matrix.dims[1]};
  auto* const out = static_cast<Element*>(scratch);
  const std::int64_t stride = whole_words<Operand>(matrix.dims[1]);
  pool.parallel_ranges(matrix.dims[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      gather_row<Operand>(matrix, r, out + r * stride);
    }
  });
  return {out, stride};
}

// The same with dropout applied to the elements, whose index is row * columns + column.
template <class Operand>
inline OperandRows<Operand> dropped_rows(const ConstView& matrix, const Dropout& dropout,
                                         void* scratch, ThreadPool& pool) {
  if (dropout.probability <= 0) return operand_rows<Operand>(matrix, scratch, pool);
  auto* const out = static_cast<typename Operand::Element*>(scratch);
  const std::int64_t columns = matrix.dims[1], stride = whole_words<Operand>(columns);
  const auto convert = [&](const auto* from, std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      rows_detail::convert_dropped_row<Operand>(from + r * columns, {r * columns, columns}, dropout,
                                                out + r * stride);
    }
  };
  pool.parallel_ranges(matrix.dims[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
    if (matrix.dtype == DType::kBF16) {
      convert(matrix.as<BFloat16>(), begin, end);
    } else {
      convert(matrix.as<float>(), begin, end);
    }
  });
  return {out, stride};
}

// matrix[rows, columns] in FP32, times `scale`, as an operand.
template <class Operand>
inline OperandRows<Operand> scaled_rows(const ConstView& matrix, float scale, void* scratch,
                                        ThreadPool& pool) {
  auto* const out = static_cast<typename Operand::Element*>(scratch);
  const std::int64_t columns = matrix.dims[1], stride = whole_words<Operand>(columns);
  const float* const from = matrix.as<float>();
  pool.parallel_ranges(matrix.dims[0], 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < stride; ++c) {
        out[r * stride + c] = Operand::from(c < columns ? scale * from[r * columns + c] : 0.0f);
      }
    }
  });
  return {out, stride};
}

// The transpose of matrix[rows, columns]: [columns, rows].
template <class Operand>
inline OperandRows<Operand> transposed_rows(const ConstView& matrix, float scale, void* scratch,
                                            ThreadPool& pool) {
  auto* const out = static_cast<typename Operand::Element*>(scratch);
  const std::int64_t rows = matrix.dims[0], columns = matrix.dims[1];
  const std::int64_t stride = whole_words<Operand>(rows);
  pool.parallel_ranges(columns, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t c = begin; c < end; ++c) {
      for (std::int64_t r = 0; r < stride; ++r) {
        out[c * stride + r] =
            Operand::from(r < rows ? scale * element(matrix, r * columns + c) : 0.0f);
      }
    }
  });
  return {out, stride};
}

}  // namespace reprise::cpu::REPRISE_ISA
