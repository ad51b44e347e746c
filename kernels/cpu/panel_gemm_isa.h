// A product whose right operand is made panel by panel: out[rows, columns] tile by tile, each tile
// as a sum over the depth and then, by the caller's epilogue, whatever else belongs to it. Tiles
// are independent and every sum runs in one order, so the bits depend neither on the number of
// threads nor on who computes what.
#pragma once

#include "kernels/cpu/operand_rows_isa.h"
#include "kernels/cpu/scratch_carver_isa.h"

namespace reprise::cpu::REPRISE_ISA {

// Steps of the reduction in a panel: 64 KiB of panel, which the second-level cache holds beside the
// tile's sums and the rows that stream by.
template <class Operand>
inline constexpr std::int64_t kPanelDepth = 256 * Operand::kStep;

// Rows of a tile: its sums (128 KiB) stay in the second-level cache, and a panel serves all of
// them.
inline constexpr std::int64_t kTileHeight = 512;

// How a product is cut into tiles of at most kTileHeight x kPanel.
struct Tiling {
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_tiles = 1, column_tiles = 1;
  std::int64_t height = 0;  // rows of a tile, but for the last

  Tiling(std::int64_t row_count, std::int64_t column_count, int threads)
      : rows(row_count), columns(column_count) {
    column_tiles = (columns + kPanel - 1) / kPanel;
    row_tiles = (rows + kTileHeight - 1) / kTileHeight;
    // Few columns leave threads idle; cutting the rows as well costs packing the panels again, so
    // only while enough rows remain to pay for it.
    constexpr std::int64_t kFewestRows = 96;
    while (idle_share(threads) > 0.06 && rows / (row_tiles + 1) >= kFewestRows) ++row_tiles;
    height = (rows + row_tiles - 1) / row_tiles;
    row_tiles = (rows + height - 1) / height;
  }
  std::int64_t count() const { return row_tiles * column_tiles; }
  // What part of the time threads wait at the end, if all tiles take equally long.
  double idle_share(int threads) const {
    const std::int64_t rounds = (count() + threads - 1) / threads;
    return 1 - static_cast<double>(count()) / static_cast<double>(rounds * threads);
  }
};

// One tile and its sums.
struct Tile {
  std::int64_t row = 0, column = 0;  // of the product
  std::int64_t height = 0, width = 0;
  float* sums = nullptr;  // [height, kPanel]
};

// Scratch of one worker: a panel, the sums of a tile, and a second set of sums for the epilogue.
template <class Operand>
struct WorkerMemory {
  typename Operand::Element* panel;
  float* sums;
  float* second_sums;

  static std::int64_t panel_bytes() {
    return kPanel * kPanelDepth<Operand> *
           static_cast<std::int64_t>(sizeof(typename Operand::Element));
  }
  static std::int64_t sums_bytes() {
    return kTileHeight * kPanel * static_cast<std::int64_t>(sizeof(float));
  }
  static std::int64_t bytes() { return panel_bytes() + 2 * sums_bytes(); }
  static WorkerMemory of(void* scratch, int worker) {
    auto* const base = static_cast<char*>(scratch) + worker * bytes();
    auto* const sums = reinterpret_cast<float*>(base + panel_bytes());
    return {reinterpret_cast<typename Operand::Element*>(base), sums,
            sums + sums_bytes() / static_cast<std::int64_t>(sizeof(float))};
  }
};

// Adds a[rows of the tile] . panels to sums, `pack(depth_begin, depth_end, panel)` making the
// panels of the tile's columns.
template <class Operand, class Pack>
inline void add_product(const Tile& tile, const OperandRows<Operand>& a, std::int64_t depth,
                        float* sums, OutputMode mode, typename Operand::Element* panel,
                        Pack&& pack) {
  for (std::int64_t begin = 0; begin < depth; begin += kPanelDepth<Operand>) {
    const std::int64_t left = depth - begin;
    const std::int64_t size = left < kPanelDepth<Operand> ? left : kPanelDepth<Operand>;
    pack(begin, begin + size, panel);
    multiply_panel<Operand>({.a = a.row(tile.row) + begin,
                             .lda = a.stride,
                             .panel = panel,
                             .depth = whole_words<Operand>(size),
                             .c = sums,
                             .ldc = kPanel,
                             .width = kPanel,
                             .mode = begin == 0 ? mode : OutputMode::kAccumulate},
                            tile.height);
  }
}

// Calls compute(tile, memory) for every tile.
template <class Operand, class Compute>
inline void for_each_tile(const Tiling& tiling, void* scratch, ThreadPool& pool,
                          Compute&& compute) {
  pool.parallel_dynamic(tiling.count(), [&](std::int64_t index, int worker) {
    const WorkerMemory<Operand> memory = WorkerMemory<Operand>::of(scratch, worker);
    Tile tile{.row = index % tiling.row_tiles * tiling.height,
              .column = index / tiling.row_tiles * kPanel,
              .sums = memory.sums};
    tile.height = tiling.rows - tile.row < tiling.height ? tiling.rows - tile.row : tiling.height;
    tile.width = tiling.columns - tile.column < kPanel ? tiling.columns - tile.column : kPanel;
    compute(tile, memory);
  });
}

// Writes a tile's sums into out[rows, columns], FP32 or bf16; `bias` may be null.
template <class T>
inline void write_tile(const Tile& tile, T* out, std::int64_t stride, const float* bias,
                       OutputMode mode) {
  for (std::int64_t r = 0; r < tile.height; ++r) {
    const float* const sums = tile.sums + r * kPanel;
    T* const to = out + (tile.row + r) * stride + tile.column;
    for_lanes(0, tile.width, [&](std::int64_t j, std::int64_t count) {
      Floats values = read(sums + j, count);
      if (bias != nullptr) values += read(bias + tile.column + j, count);
      if (mode == OutputMode::kAccumulate) values = read(to + j, count) + values;
      write(values, to + j, count);
    });
  }
}

inline void write_tile(const Tile& tile, const View& out, const float* bias, OutputMode mode) {
  with_elements(out, [&](auto* to) { write_tile(tile, to, out.dims[1], bias, mode); });
}

}  // namespace reprise::cpu::REPRISE_ISA
