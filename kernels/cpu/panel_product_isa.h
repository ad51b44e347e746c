// Products of rows with a panel: 64 columns of a weight, packed so that one row of a panel holds
// one step of the reduction. dense_panel_isa.h and nf4_panel_isa.h pack them.
//
// How the operands of a product are held:
//   Fp32Operand     FP32 compute
//   RoundedOperand  bf16 compute without a bf16 dot product: FP32 numbers that bf16 can hold
//   PairOperand     bf16 compute with one: a step of the reduction is a pair of bf16 numbers
#pragma once

#include <cstdint>

#include "kernels/cpu/amx_tiles_isa.h"
#include "kernels/cpu/lanes_isa.h"
#include "reprise/kernels/dtype.h"

namespace reprise::cpu::REPRISE_ISA {

inline constexpr std::int64_t kPanel = 64;  // columns

struct Fp32Operand {
  using Element = float;
  static constexpr std::int64_t kStep = 1;  // elements of the reduction in a 32-bit word
  static Element from(float value) { return value; }
  static Ints words(const float* from) { return load_as<Ints>(from); }
  static Ints words(const BFloat16* from) { return bits_of<Ints>(widen(load_as<Halves>(from))); }
  static Ints word(Floats values) { return bits_of<Ints>(values); }
  static void store(Floats values, Element* to) { store_as(values, to); }
  static Floats multiply(Floats sum, Ints a, Ints b) {
    return multiply_add(bits_of<Floats>(a), bits_of<Floats>(b), sum);
  }
};

struct RoundedOperand : Fp32Operand {
  static Element from(float value) { return to_float(to_bfloat16(value)); }
  static Ints words(const float* from) {
    return bits_of<Ints>(round_to_bf16(load_as<Floats>(from)));
  }
  static Ints words(const BFloat16* from) { return Fp32Operand::words(from); }
  static Ints word(Floats values) { return bits_of<Ints>(round_to_bf16(values)); }
  static void store(Floats values, Element* to) { store_as(round_to_bf16(values), to); }
};

#if defined(__AVX512BF16__)
struct PairOperand {
  using Element = BFloat16;
  static constexpr std::int64_t kStep = 2;
  static Element from(float value) { return to_bfloat16(value); }
  static Ints words(const float* from) {
    Halves halves[2] = {narrow(load_as<Floats>(from)), narrow(load_as<Floats>(from + kLanes))};
    return load_as<Ints>(halves);
  }
  static Ints words(const BFloat16* from) { return load_as<Ints>(from); }
  // Words of two steps of the reduction.
  static Ints pair(Floats first, Floats second) { return bf16_pairs(first, second); }
  static void store(Floats values, Element* to) { store_as(narrow(values), to); }
  static Floats multiply(Floats sum, Ints a, Ints b) {
    return _mm512_dpbf16_ps(sum, bits_of<__m512bh>(a), bits_of<__m512bh>(b));
  }
};
using Bf16Operand = PairOperand;
#else
using Bf16Operand = RoundedOperand;
#endif

// Calls run(operand) with an object of the operand's type for a compute type.
template <class Run>
inline decltype(auto) with_operand(ComputeType compute, Run&& run) {
  return compute == ComputeType::kBF16 ? run(Bf16Operand{}) : run(Fp32Operand{});
}

// Elements of a reduction over `depth`, rounded up to whole words.
template <class Operand>
constexpr std::int64_t whole_words(std::int64_t depth) {
  return (depth + Operand::kStep - 1) / Operand::kStep * Operand::kStep;
}

// Where element (k, column) of a panel lies.
template <class Operand>
constexpr std::int64_t panel_index(std::int64_t k, std::int64_t column) {
  return (k / Operand::kStep * kPanel + column) * Operand::kStep + k % Operand::kStep;
}

// c[rows, width] (+)= a[rows, depth] . panel. `depth` counts elements, in whole words.
template <class Operand>
struct PanelProduct {
  const typename Operand::Element* a;
  std::int64_t lda;
  const typename Operand::Element* panel;
  std::int64_t depth;
  float* c;
  std::int64_t ldc;
  std::int64_t width;
  OutputMode mode;
};

namespace panel_detail {

// Rows of a register tile, and its width in vectors: with the vectors of the panel and a broadcast
// they fill 29 of AVX-512's 32 registers, 15 of the 16 of AVX2 and SSE2.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = kLanes == 16 ? 4 : 2;

// Stores what lies inside the product's width.
template <class Operand>
inline void store_columns(Floats sums, const PanelProduct<Operand>& p, std::int64_t row,
                          std::int64_t first) {
  float* const c = p.c + row * p.ldc + first;
  const bool accumulate = p.mode == OutputMode::kAccumulate;
  if (first + kLanes <= p.width) {
    store_as(accumulate ? load_as<Floats>(c) + sums : sums, c);
    return;
  }
  for (int lane = 0; lane < kLanes && first + lane < p.width; ++lane) {
    c[lane] = accumulate ? c[lane] + sums[lane] : sums[lane];
  }
}

// Up to kRows rows from `row`, kVectors wide. Rows that are missing repeat the last one and are not
// stored: one body for all counts keeps the code, and the time to compile it, small.
template <int kRows, int kVectors, class Operand>
inline void multiply_tile(const PanelProduct<Operand>& p, std::int64_t row, std::int64_t rows,
                          std::int64_t column) {
  Floats sums[kRows][kVectors] = {};
  const typename Operand::Element* a[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) a[r] = p.a + (row + (r < rows ? r : rows - 1)) * p.lda;
  const typename Operand::Element* panel = p.panel + column * Operand::kStep;
  for (std::int64_t k = 0; k < p.depth; k += Operand::kStep) {
    Ints b[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      b[v] = load_as<Ints>(panel + v * kLanes * Operand::kStep);
    }
    panel += kPanel * Operand::kStep;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Ints broadcast = Ints{} + load_as<std::int32_t>(a[r] + k);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = Operand::multiply(sums[r][v], broadcast, b[v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) break;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      store_columns(sums[r][v], p, row + r, column + v * kLanes);
    }
  }
}

// On the vector registers.
template <class Operand>
inline void multiply_in_vectors(const PanelProduct<Operand>& p, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; row += kTileRows) {
    for (std::int64_t column = 0; column < p.width; column += kTileVectors * kLanes) {
      multiply_tile<kTileRows, kTileVectors>(p, row, rows - row, column);
    }
  }
}

#if defined(__AMX_BF16__)
// In tiles; p.depth is a multiple of kTileDepth.
inline void multiply_in_tiles(const PanelProduct<PairOperand>& p, std::int64_t rows) {
  constexpr std::int64_t kEdge = 2 * kTileEdge;
  const auto blocks = [&p](std::int64_t first, std::int64_t last, std::int64_t rows_of_block) {
    const TileRegisters registers(rows_of_block);
    for (std::int64_t row = first; row < last; row += rows_of_block) {
      for (std::int64_t column = 0; column < p.width; column += kEdge) {
        const TileBlock block = {.a = p.a + row * p.lda,
                                 .lda = p.lda,
                                 .panel = p.panel + 2 * column,
                                 .panel_row = 2 * kPanel,
                                 .depth = p.depth,
                                 .c = p.c + row * p.ldc + column,
                                 .ldc = p.ldc,
                                 .rows = rows_of_block,
                                 .mode = p.mode};
        const std::int64_t width = p.width - column;
        width >= kEdge ? multiply_block(block) : multiply_narrow_block(block, width);
      }
    }
  };
  const std::int64_t whole = rows / kEdge * kEdge;
  if (whole > 0) blocks(0, whole, kEdge);
  if (rows > whole) blocks(whole, rows, rows - whole);
}
#endif

}  // namespace panel_detail

template <class Operand>
inline void multiply_panel(const PanelProduct<Operand>& p, std::int64_t rows) {
#if defined(__AMX_BF16__)
  if constexpr (Operand::kStep == 2) {
    PanelProduct<Operand> tiles = p;
    tiles.depth = p.depth / kTileDepth * kTileDepth;
    if (tiles.depth > 0) panel_detail::multiply_in_tiles(tiles, rows);
    if (tiles.depth == p.depth) return;
    PanelProduct<Operand> rest = p;
    rest.a += tiles.depth;
    rest.panel += tiles.depth * kPanel;
    rest.depth -= tiles.depth;
    rest.mode = tiles.depth > 0 ? OutputMode::kAccumulate : p.mode;
    return panel_detail::multiply_in_vectors(rest, rows);
  }
#endif
  panel_detail::multiply_in_vectors(p, rows);
}

}  // namespace reprise::cpu::REPRISE_ISA
