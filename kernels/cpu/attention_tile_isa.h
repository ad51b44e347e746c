// Tiles of attention: kTile positions by kTile positions of one query head, made from panels of the
// activations as they lie in memory. Forward and backward share the geometry and the scratch.
#pragma once

#include "kernels/cpu/dense_panel_isa.h"
#include "kernels/cpu/exp_isa.h"
#include "kernels/cpu/row_access_isa.h"
#include "kernels/cpu/scratch_carver_isa.h"
#include "reprise/kernels/ops/attention.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::cpu::REPRISE_ISA {

inline constexpr std::int64_t kTile = kPanel;  // positions

inline std::int64_t shorter(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

struct AttentionGeometry {
  AttentionShape shape;
  std::int64_t group_heads;   // query heads of a key/value head
  std::int64_t tiles;         // of a sequence
  std::int64_t depth_panels;  // panels of head_dim columns

  explicit AttentionGeometry(const AttentionShape& s)
      : shape(s),
        group_heads(s.heads / s.kv_heads),
        tiles((s.seq + kTile - 1) / kTile),
        depth_panels((s.head_dim + kPanel - 1) / kPanel) {}

  std::int64_t tile_rows(std::int64_t tile) const {
    return shorter(kTile, shape.seq - tile * kTile);
  }
  std::int64_t lse_row(std::int64_t batch, std::int64_t head, std::int64_t s) const {
    return (batch * shape.heads + head) * shape.seq + s;
  }
};

// A rectangle of an activation matrix [rows, heads * D]: a tile of positions of one head.
struct HeadTile {
  const ConstView& matrix;
  std::int64_t row = 0;  // first position, counted over all sequences
  std::int64_t rows = 0;
  std::int64_t column = 0;   // head * D
  std::int64_t columns = 0;  // D
};

// Tile `tile` of a head of a matrix that has `head_dim` columns for each of its heads.
inline HeadTile head_tile(const AttentionGeometry& g, const ConstView& matrix, std::int64_t batch,
                          std::int64_t head, std::int64_t tile) {
  return {.matrix = matrix,
          .row = batch * g.shape.seq + tile * kTile,
          .rows = g.tile_rows(tile),
          .column = head * g.shape.head_dim,
          .columns = g.shape.head_dim};
}

// Copies a tile as the left operand of a product, [kTile, whole_words(D)].
template <class Operand>
[[gnu::noinline]] void copy_operand(const HeadTile& tile, typename Operand::Element* to) {
  const std::int64_t stride = whole_words<Operand>(tile.columns);
  with_elements(tile.matrix, [&](const auto* from) {
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      convert_row<Operand>(from + (tile.row + r) * tile.matrix.dims[1] + tile.column, tile.columns,
                           to + r * stride);
    }
  });
}

// scores[rows, kTile] = left . tile^T: the tile's positions are the columns.
template <class Operand>
inline void multiply_transposed(const typename Operand::Element* left, std::int64_t rows,
                                const typename Operand::Element* panel, std::int64_t depth,
                                float* scores) {
  multiply_panel<Operand>({.a = left,
                           .lda = whole_words<Operand>(depth),
                           .panel = panel,
                           .depth = whole_words<Operand>(depth),
                           .c = scores,
                           .ldc = kTile,
                           .width = kTile,
                           .mode = OutputMode::kOverwrite},
                          rows);
}
template <class Operand>
inline void pack_positions_as_columns(const HeadTile& tile, typename Operand::Element* panel) {
  pack_weight_rows<Operand>({.weight = tile.matrix,
                             .column = tile.row,
                             .width = tile.rows,
                             .depth_begin = tile.column,
                             .depth_end = tile.column + tile.columns},
                            panel);
}

// Panels whose columns are the dimensions of the head and whose depth are the tile's positions; one
// after another, kPanelStride elements apart.
inline constexpr std::int64_t kPanelStride = kPanel * kTile;
template <class Operand>
inline void pack_positions_as_depth(const HeadTile& tile, typename Operand::Element* panels) {
  for (std::int64_t d = 0; d < tile.columns; d += kPanel) {
    pack_weight_columns<Operand>({.weight = tile.matrix,
                                  .column = tile.column + d,
                                  .width = shorter(kPanel, tile.columns - d),
                                  .depth_begin = tile.row,
                                  .depth_end = tile.row + tile.rows},
                                 panels + d / kPanel * kPanelStride);
  }
}
// out[rows, D] += left[rows, positions] . panels; left has rows of kTile elements.
template <class Operand>
inline void add_weighted(const typename Operand::Element* left, std::int64_t rows,
                         std::int64_t positions, const typename Operand::Element* panels,
                         std::int64_t columns, float* out) {
  for (std::int64_t d = 0; d < columns; d += kPanel) {
    multiply_panel<Operand>({.a = left,
                             .lda = kTile,
                             .panel = panels + d / kPanel * kPanelStride,
                             .depth = whole_words<Operand>(positions),
                             .c = out + d,
                             .ldc = columns,
                             .width = shorter(kPanel, columns - d),
                             .mode = OutputMode::kAccumulate},
                            rows);
  }
}

// Writes a tile of FP32 [rows, D] into an activation matrix.
[[gnu::noinline]] inline void write_head_tile(const float* from, const View& matrix,
                                              const HeadTile& tile) {
  with_elements(matrix, [&](auto* to) {
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      auto* const row = to + (tile.row + r) * matrix.dims[1] + tile.column;
      for_lanes(0, tile.columns, [&](std::int64_t c, std::int64_t count) {
        write(read(from + r * tile.columns + c, count), row + c, count);
      });
    }
  });
}

}  // namespace reprise::cpu::REPRISE_ISA
