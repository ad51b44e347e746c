// Packing a dense row-major weight, and the rows that are multiplied with it.
#pragma once

#include <cstdint>

#include "kernels/cpu/panel_product_isa.h"
#include "kernels/cpu/row_access_isa.h"
#include "reprise/kernels/view.h"

namespace reprise::cpu::REPRISE_ISA {

inline float element(const ConstView& view, std::int64_t index) {
  return view.dtype == DType::kBF16 ? to_float(view.as<BFloat16>()[index])
                                    : view.as<float>()[index];
}

// `columns` neighbouring elements as an operand, zeros up to whole words.
template <class Operand, class From>
inline void convert_row(const From* from, std::int64_t columns, typename Operand::Element* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) Operand::store(read(from + i), to + i);
  for (; i < whole_words<Operand>(columns); ++i) {
    to[i] = Operand::from(i < columns ? read_one(from + i) : 0.0f);
  }
}

// Row `row` of a matrix, zeros up to whole words.
template <class Operand>
inline void gather_row(const ConstView& matrix, std::int64_t row, typename Operand::Element* to) {
  const std::int64_t columns = matrix.dims[1];
  with_elements(matrix,
                [&](const auto* from) { convert_row<Operand>(from + row * columns, columns, to); });
}

// The part of a weight that becomes a panel: `width` of the product's columns from `column`, and
// the reduction from `depth_begin` to `depth_end`. Which is which of the weight's axes is the
// packing function's matter.
struct PanelSource {
  const ConstView& weight;
  std::int64_t column = 0;
  std::int64_t width = 0;
  std::int64_t depth_begin = 0;
  std::int64_t depth_end = 0;
};

namespace panel_detail {

template <class Operand, class From>
inline void pack_rows(const From* weight, std::int64_t stride, const PanelSource& source,
                      typename Operand::Element* panel) {
  const std::int64_t depth = source.depth_end - source.depth_begin;
  constexpr std::int64_t kBlock = kLanes * Operand::kStep;
  const std::int64_t whole = depth / kBlock * kBlock;
  for (std::int64_t column = 0; column < kPanel; column += kLanes) {
    const From* const first = weight + (source.column + column) * stride + source.depth_begin;
    for (std::int64_t k = 0; k < whole; k += kBlock) {
      Ints rows[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        rows[lane] =
            column + lane < source.width ? Operand::words(first + lane * stride + k) : Ints{};
      }
      transpose(rows);
      for (int lane = 0; lane < kLanes; ++lane) {
        store_as(rows[lane], panel + panel_index<Operand>(k + lane * Operand::kStep, column));
      }
    }
  }
}

template <class Operand, class From>
inline void pack_row_of_columns(const From* row, const From* next, std::int64_t width,
                                typename Operand::Element* to) {
  for (std::int64_t j = 0; j + kLanes <= width; j += kLanes) {
    if constexpr (Operand::kStep == 1) {
      store_as(Operand::words(row + j), to + j);
    } else {
      // Lane by lane the pair (row, next).
      const auto half = [j](const From* from) {
        if constexpr (sizeof(From) == 2) {
          return __builtin_convertvector(load_as<Halves>(from + j), Ints);
        } else {
          return __builtin_convertvector(narrow(load_as<Floats>(from + j)), Ints);
        }
      };
      store_as(half(row) | (next == nullptr ? Ints{} : half(next) << 16), to + 2 * j);
    }
  }
}

template <class Operand, class From>
inline void pack_columns(const From* weight, std::int64_t stride, const PanelSource& source,
                         typename Operand::Element* panel) {
  for (std::int64_t k = source.depth_begin; k < source.depth_end; k += Operand::kStep) {
    const From* const row = weight + k * stride + source.column;
    const From* const next = k + 1 < source.depth_end ? row + stride : nullptr;
    pack_row_of_columns<Operand>(row, next, source.width,
                                 panel + panel_index<Operand>(k - source.depth_begin, 0));
  }
}

}  // namespace panel_detail

// Columns of the product are rows of the weight: panel(k, j) = weight[column + j][k].
template <class Operand>
[[gnu::noinline]] void pack_weight_rows(const PanelSource& source,
                                        typename Operand::Element* panel) {
  const std::int64_t stride = source.weight.dims[1];
  if (source.weight.dtype == DType::kBF16) {
    panel_detail::pack_rows<Operand>(source.weight.as<BFloat16>(), stride, source, panel);
  } else {
    panel_detail::pack_rows<Operand>(source.weight.as<float>(), stride, source, panel);
  }
  const std::int64_t depth = source.depth_end - source.depth_begin;
  constexpr std::int64_t kBlock = kLanes * Operand::kStep;
  for (std::int64_t k = depth / kBlock * kBlock; k < whole_words<Operand>(depth); ++k) {
    for (std::int64_t j = 0; j < kPanel; ++j) {
      const bool inside = j < source.width && k < depth;
      const std::int64_t index = (source.column + j) * stride + source.depth_begin + k;
      panel[panel_index<Operand>(k, j)] =
          Operand::from(inside ? element(source.weight, index) : 0.0f);
    }
  }
}

// Columns of the product are columns of the weight: panel(k, j) = weight[k][column + j].
template <class Operand>
[[gnu::noinline]] void pack_weight_columns(const PanelSource& source,
                                           typename Operand::Element* panel) {
  const std::int64_t stride = source.weight.dims[1];
  if (source.weight.dtype == DType::kBF16) {
    panel_detail::pack_columns<Operand>(source.weight.as<BFloat16>(), stride, source, panel);
  } else {
    panel_detail::pack_columns<Operand>(source.weight.as<float>(), stride, source, panel);
  }
  const std::int64_t depth = source.depth_end - source.depth_begin;
  for (std::int64_t k = 0; k < whole_words<Operand>(depth); ++k) {
    for (std::int64_t j = source.width / kLanes * kLanes; j < kPanel; ++j) {
      const bool inside = j < source.width && k < depth;
      const std::int64_t index = (source.depth_begin + k) * stride + source.column + j;
      panel[panel_index<Operand>(k, j)] =
          Operand::from(inside ? element(source.weight, index) : 0.0f);
    }
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
