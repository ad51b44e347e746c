// Products with few columns, the rank of an adapter: out[rows, R] = a[rows, depth] . panel, in
// tiles that are as narrow as the rank and tall instead.
#pragma once

#include "kernels/cpu/panel_gemm_isa.h"

namespace reprise::cpu::REPRISE_ISA {

namespace low_rank_detail {

// Accumulators of a tall tile: 12 rows of one or two vectors keep the pipeline of the dot product
// full (4 to 6 cycles) within the registers.
inline constexpr int kTallRows = 12;

template <int kRows, int kVectors, class Operand>
inline void multiply_tall(const PanelProduct<Operand>& p, std::int64_t row, std::int64_t column) {
  Floats sums[kRows][kVectors] = {};
  const auto* const a = p.a + row * p.lda;
  const auto* panel = p.panel + column * Operand::kStep;
  for (std::int64_t k = 0; k < p.depth; k += Operand::kStep) {
    Ints b[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      b[v] = load_as<Ints>(panel + v * kLanes * Operand::kStep);
    }
    panel += kPanel * Operand::kStep;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Ints broadcast = Ints{} + load_as<std::int32_t>(a + r * p.lda + k);
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = Operand::multiply(sums[r][v], broadcast, b[v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* const c = p.c + (row + r) * p.ldc + column + v * kLanes;
      const Floats old = p.mode == OutputMode::kAccumulate ? load_as<Floats>(c) : Floats{};
      store_as(old + sums[r][v], c);
    }
  }
}

}  // namespace low_rank_detail

// Like multiply_panel for p.width columns, rounded up to whole vectors: p.c must have room for
// them.
template <class Operand>
inline void multiply_narrow(const PanelProduct<Operand>& p, std::int64_t rows) {
  using namespace low_rank_detail;
  for (std::int64_t column = 0; column < p.width; column += kLanes) {
    std::int64_t row = 0;
    for (; row + kTallRows <= rows; row += kTallRows) {
      multiply_tall<kTallRows, 1>(p, row, column);
    }
    for (; row < rows; ++row) multiply_tall<1, 1>(p, row, column);
  }
}

// out[rows, R] (FP32, overwritten) = scale * a . weight, the weight's panels made by `pack(column,
// width, depth_begin, depth_end, panel)`.
template <class Operand, class Pack>
inline void low_rank_product(const OperandRows<Operand>& a, std::int64_t depth, float scale,
                             const View& out, void* scratch, ThreadPool& pool, Pack&& pack) {
  const std::int64_t rows = out.dims[0], rank = out.dims[1];
  // Rows are what there is many of; each worker packs the few columns for its own.
  const std::int64_t grain = low_rank_detail::kTallRows;
  pool.parallel_ranges(rows, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    const WorkerMemory<Operand> memory = WorkerMemory<Operand>::of(scratch, worker);
    for (std::int64_t first = begin; first < end; first += kTileHeight) {
      const std::int64_t left = end - first;
      const std::int64_t height = left < kTileHeight ? left : kTileHeight;
      for (std::int64_t column = 0; column < rank; column += kPanel) {
        const std::int64_t width = rank - column < kPanel ? rank - column : kPanel;
        for (std::int64_t k = 0; k < depth; k += kPanelDepth<Operand>) {
          const std::int64_t size =
              depth - k < kPanelDepth<Operand> ? depth - k : kPanelDepth<Operand>;
          pack(column, width, k, k + size, memory.panel);
          multiply_narrow<Operand>(
              {.a = a.row(first) + k,
               .lda = a.stride,
               .panel = memory.panel,
               .depth = whole_words<Operand>(size),
               .c = memory.sums,
               .ldc = kPanel,
               .width = width,
               .mode = k == 0 ? OutputMode::kOverwrite : OutputMode::kAccumulate},
              height);
        }
        for (std::int64_t r = 0; r < height; ++r) {
          for (std::int64_t j = 0; j < width; ++j) {
            out.as<float>()[(first + r) * rank + column + j] = scale * memory.sums[r * kPanel + j];
          }
        }
      }
    }
  });
}

}  // namespace reprise::cpu::REPRISE_ISA
