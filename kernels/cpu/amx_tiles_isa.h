// Panel products in the tile registers of AMX: 32 rows x 32 columns of the result in four tiles,
// 32 steps of the reduction an instruction. A panel of bf16 pairs (dense_panel_isa.h) already lies
// as a tile wants its second operand: 16 pairs of rows, 16 columns of 4 bytes.
#pragma once

#if defined(__AMX_BF16__)

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/lanes_isa.h"
#include "reprise/kernels/dtype.h"

namespace reprise::cpu::REPRISE_ISA {

inline constexpr std::int64_t kTileDepth = 32;  // bf16 elements: 64 bytes, a row of a tile
inline constexpr std::int64_t kTileEdge = 16;   // rows of a tile, and FP32 columns of one

// The tile registers of this thread, shaped for `rows` (1 ... 32) rows of the result: 0 to 3 hold
// the result, 4 and 5 the rows' operand, 6 and 7 the panel. Released at the end, so that a switch
// of threads does not have to save 8 KiB.
class TileRegisters {
 public:
  explicit TileRegisters(std::int64_t rows) {
    const auto upper = static_cast<std::uint8_t>(rows < kTileEdge ? rows : kTileEdge);
    const auto lower = static_cast<std::uint8_t>(rows - upper > 0 ? rows - upper : 1);
    struct alignas(64) {
      std::uint8_t palette = 1;
      std::uint8_t start_row = 0;
      std::uint8_t reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {};
    } shape;
    const std::uint8_t rows_of_tiles[8] = {upper, upper, lower,     lower,
                                           upper, lower, kTileEdge, kTileEdge};
    __builtin_memcpy(shape.rows, rows_of_tiles, sizeof(rows_of_tiles));
    barrier();
    _tile_loadconfig(&shape);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

  // NOTE: GCC's tile loads do not tell the compiler that they read memory.
  static void barrier() { __asm__ volatile("" ::: "memory"); }
};

// c[rows, 32] (+)= a[rows, depth] . panel, for up to 32 rows; `depth` is a multiple of kTileDepth.
struct TileBlock {
  const BFloat16* a;
  std::int64_t lda;
  const BFloat16* panel;
  std::int64_t panel_row;  // elements from one pair of steps to the next
  std::int64_t depth;
  float* c;
  std::int64_t ldc;
  std::int64_t rows;
  OutputMode mode;
};

inline void multiply_block(const TileBlock& b) {
  const std::int64_t a_bytes = b.lda * 2, panel_bytes = b.panel_row * 2, c_bytes = b.ldc * 4;
  const bool two = b.rows > kTileEdge;
  float* const c_lower = b.c + (two ? kTileEdge * b.ldc : 0);
  const BFloat16* const a_lower = b.a + (two ? kTileEdge * b.lda : 0);
  TileRegisters::barrier();
  if (b.mode == OutputMode::kAccumulate) {
    _tile_loadd(0, b.c, c_bytes);
    _tile_loadd(1, b.c + kTileEdge, c_bytes);
    _tile_loadd(2, c_lower, c_bytes);
    _tile_loadd(3, c_lower + kTileEdge, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t k = 0; k < b.depth; k += kTileDepth) {
    const BFloat16* const panel = b.panel + k / 2 * b.panel_row;
    _tile_loadd(4, b.a + k, a_bytes);
    _tile_loadd(6, panel, panel_bytes);
    _tile_loadd(7, panel + 2 * kTileEdge, panel_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (!two) continue;
    _tile_loadd(5, a_lower + k, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, b.c, c_bytes);
  _tile_stored(1, b.c + kTileEdge, c_bytes);
  if (!two) return;
  _tile_stored(2, c_lower, c_bytes);
  _tile_stored(3, c_lower + kTileEdge, c_bytes);
}

// The same where only `width` (below 32) columns of c exist.
inline void multiply_narrow_block(const TileBlock& b, std::int64_t width) {
  constexpr std::int64_t kEdge = 2 * kTileEdge;
  alignas(64) float c[kEdge * kEdge];
  for (std::int64_t r = 0; b.mode == OutputMode::kAccumulate && r < b.rows; ++r) {
    for (std::int64_t j = 0; j < kEdge; ++j) {
      c[r * kEdge + j] = j < width ? b.c[r * b.ldc + j] : 0.0f;
    }
  }
  TileBlock whole = b;
  whole.c = c;
  whole.ldc = kEdge;
  multiply_block(whole);
  for (std::int64_t r = 0; r < b.rows; ++r) {
    for (std::int64_t j = 0; j < width; ++j) b.c[r * b.ldc + j] = c[r * kEdge + j];
  }
}

}  // namespace reprise::cpu::REPRISE_ISA

#endif
