// Products with few columns, the rank of an adapter: out[rows, R] = a[rows, depth] . panel, in
// tiles that are as narrow as the rank and tall instead.
#pragma once

#include "kernels/cpu/panel_gemm_isa.h"

namespace reprise::cpu::REPRISE_ISA {

// Rows of a tall tile, one vector wide: their sums keep the pipeline of the dot product full (4 to
// 6 cycles) within the registers.
inline constexpr int kTallRows = 12;

// multiply_panel for the few columns of an adapter.
template <class Operand>
inline void multiply_narrow(const PanelProduct<Operand>& p, std::int64_t rows) {
  for (std::int64_t column = 0; column < p.width; column += kLanes) {
    for (std::int64_t row = 0; row < rows; row += kTallRows) {
      panel_detail::multiply_tile<kTallRows, 1>(p, row, rows - row, column);
    }
  }
}

// out[rows, R] (FP32, overwritten) = scale * a . weight, the weight's panels made by `pack(column,
// width, depth_begin, depth_end, panel)`.
template <class Operand, class Pack>
inline void low_rank_product(const OperandRows<Operand>& a, std::int64_t depth, float scale,
                             const View& out, void* scratch, ThreadPool& pool, Pack&& pack) {
  const std::int64_t rows = out.dims[0], rank = out.dims[1];
  // Rows are what there is many of; each worker packs the few columns for its own.
  const std::int64_t grain = kTallRows;
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
