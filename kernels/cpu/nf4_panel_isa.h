// Decoding NF4 weights straight into packed panels (dense_panel_isa.h says how a panel lies): the
// only form in which a frozen weight is ever dequantised here.
//
//   pack_nf4_rows     panel(k, j) = W[column + j][k]   forward: the reduction runs along a row
//   pack_nf4_columns  panel(n, j) = W[n][column + j]   backward: it runs along a column
//
// The value is codebook * absmax in FP32, then rounded to what the operand holds. Rows decode eight
// codes (32 bits) of kLanes rows at a time, transposed while they are still packed; columns decode
// 2 * kLanes neighbours of one row and put even and odd ones back in order as whole words.
#pragma once

#include <bit>
#include <type_traits>

#include "kernels/cpu/dense_panel_isa.h"
#include "reprise/kernels/nf4.h"

namespace reprise::cpu::REPRISE_ISA {

struct Nf4Source {
  Nf4View weight;  // by value: a store into the panel can't change it, for all the compiler knows
  std::int64_t column = 0;  // of the product
  std::int64_t width = 0;
  std::int64_t depth_begin = 0;
  std::int64_t depth_end = 0;
};

namespace nf4_detail {

inline constexpr std::int64_t kWordCodes = 8;  // in 32 bits
using Halves32 = std::uint16_t __attribute__((vector_size(64)));

// Only the low four bits of each lane are looked at.
inline Floats lookup(Ints codes) {
#if defined(__AVX512F__)
  const __m512 table = _mm512_loadu_ps(kNf4Codebook.data());
  return _mm512_permutexvar_ps(bits_of<__m512i>(codes), table);
#elif defined(__AVX2__)
  const __m256i index = bits_of<__m256i>(codes);
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kNf4Codebook.data()), index);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kNf4Codebook.data() + 8), index);
  // Bit 3 of the code, moved to the sign, chooses the half of the table.
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
#else
  Floats values{};
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = kNf4Codebook[codes[lane] & 15];
  return values;
#endif
}

// One step of a reduction in each lane.
template <class Operand>
inline Ints word_of(Floats values) {
  if constexpr (std::is_same_v<Operand, RoundedOperand>) values = round_to_bf16(values);
  return bits_of<Ints>(values);
}

#if defined(__AVX512BF16__)
// Two steps in each lane. The instruction flushes subnormals, as the dot product does that follows.
template <class Operand>
inline Ints pair_words(Floats first, Floats second) {
  Halves32 interleave;
  for (int i = 0; i < 32; ++i) interleave[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
  const __m512i halves = bits_of<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  return bits_of<Ints>(_mm512_permutexvar_epi16(bits_of<__m512i>(interleave), halves));
}
#else
template <class Operand>
Ints pair_words(Floats first, Floats second) = delete;  // no operand holds pairs
#endif

struct BlockIndex {
  int shift;  // block_size is a power of two
  explicit BlockIndex(const Nf4View& weight)
      : shift(std::countr_zero(static_cast<std::uint64_t>(weight.block_size))) {}
  std::int64_t of(std::int64_t element) const { return element >> shift; }
};

inline float value_at(const Nf4View& weight, std::int64_t row, std::int64_t column) {
  const std::int64_t e = row * weight.k + column;
  const int code = nf4_code(weight.packed, e, weight.order);
  return kNf4Codebook[static_cast<std::size_t>(code)] * weight.absmax[BlockIndex(weight).of(e)];
}

// Bits by which the first and the second code of byte `b` of a word are shifted down.
struct Shifts {
  int first, second;
};
inline Shifts shifts_of(NibbleOrder order, int b) {
  return order == NibbleOrder::kHighFirst ? Shifts{8 * b + 4, 8 * b} : Shifts{8 * b, 8 * b + 4};
}

// Two steps of a reduction, as the words that a panel holds of them.
template <class Operand>
inline void store_steps(Floats first, Floats second, std::int64_t k, std::int64_t column,
                        typename Operand::Element* panel) {
  if constexpr (Operand::kStep == 1) {
    Operand::store(first, panel + panel_index<Operand>(k, column));
    Operand::store(second, panel + panel_index<Operand>(k + 1, column));
  } else {
    store_as(pair_words<Operand>(first, second), panel + panel_index<Operand>(k, column));
  }
}

// Eight steps of kLanes rows from one word of each.
template <class Operand>
inline void decode_word(Ints words, Floats absmax, NibbleOrder order, std::int64_t k,
                        std::int64_t column, typename Operand::Element* panel) {
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) {
    const Shifts shift = shifts_of(order, b);
    store_steps<Operand>(lookup(words >> shift.first) * absmax,
                         lookup(words >> shift.second) * absmax, k + 2 * b, column, panel);
  }
}

// Scales of kLanes rows at column k.
inline Floats absmax_of_rows(const Nf4Source& s, std::int64_t first_row, std::int64_t k) {
  const BlockIndex block(s.weight);
  Floats values{};
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::int64_t row = first_row + lane;
    if (row >= s.column + s.width) break;
    values[lane] = s.weight.absmax[block.of(row * s.weight.k + k)];
  }
  return values;
}

// kLanes rows from `column` of the panel. Needs K and the depth range in whole words.
template <class Operand>
inline void pack_row_group(const Nf4Source& s, std::int64_t column,
                           typename Operand::Element* panel) {
  const std::int64_t first_row = s.column + column;
  const std::int64_t rows = s.width - column < kLanes ? s.width - column : kLanes;
  const bool aligned = s.weight.k % 64 == 0 && s.depth_begin % 64 == 0;
  Floats absmax{};
  for (std::int64_t k = s.depth_begin; k < s.depth_end; k += kLanes * kWordCodes) {
    const std::int64_t left = (s.depth_end - k) / kWordCodes;
    const std::int64_t count = left < kLanes ? left : kLanes;
    Ints words[kLanes] = {};
    for (std::int64_t lane = 0; lane < rows; ++lane) {
      const std::uint8_t* from = s.weight.packed + ((first_row + lane) * s.weight.k + k) / 2;
      if (count == kLanes) {
        words[lane] = load_as<Ints>(from);
      } else {
        __builtin_memcpy(&words[lane], from, static_cast<std::size_t>(count * 4));
      }
    }
    transpose(words);
    for (std::int64_t w = 0; w < count; ++w) {
      const std::int64_t at = k + w * kWordCodes;
      if (!aligned || at % 64 == 0) absmax = absmax_of_rows(s, first_row, at);
      decode_word<Operand>(words[w], absmax, s.weight.order, at - s.depth_begin, column, panel);
    }
  }
}

// Scales of every second of 2 * kLanes neighbours from element `e`.
inline Floats absmax_of_columns(const Nf4View& weight, std::int64_t e) {
  const BlockIndex block(weight);
  if (block.of(e) == block.of(e + 2 * kLanes - 1)) {
    return Floats{} + weight.absmax[block.of(e)];
  }
  Floats values{};
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = weight.absmax[block.of(e + 2 * lane)];
  return values;
}

// A byte in each lane. GCC 12 takes __builtin_convertvector from bytes to words apart, lane by
// lane.
inline Ints widen_bytes(const std::uint8_t* from) {
#if defined(__AVX512F__)
  return bits_of<Ints>(_mm512_cvtepu8_epi32(load_as<__m128i>(from)));
#elif defined(__AVX2__)
  return bits_of<Ints>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(load_as<std::int64_t>(from))));
#else
  using Bytes = std::uint8_t __attribute__((vector_size(kLanes)));
  return __builtin_convertvector(load_as<Bytes>(from), Ints);
#endif
}

// Even and odd neighbours of 2 * kLanes elements from `e`, which is even, as is every block border.
struct Neighbours {
  Floats even, odd;
};
inline Neighbours decode_neighbours(const Nf4View& weight, std::int64_t e) {
  const Ints codes = widen_bytes(weight.packed + e / 2);
  const Floats absmax = absmax_of_columns(weight, e);
  const Shifts shift = shifts_of(weight.order, 0);
  return {lookup(codes >> shift.first) * absmax, lookup(codes >> shift.second) * absmax};
}

// Puts words of even and odd columns side by side again.
template <class Element>
inline void store_interleaved(Ints even, Ints odd, Element* to) {
  Ints low{}, high{};
  for (int lane = 0; lane < kLanes; ++lane) {
    low[lane] = lane / 2 + (lane % 2) * kLanes;
    high[lane] = low[lane] + kLanes / 2;
  }
  store_as(__builtin_shuffle(even, odd, low), to);
  store_as(__builtin_shuffle(even, odd, high),
           to + static_cast<std::int64_t>(sizeof(Ints) / sizeof(Element)));
}

// Columns [column, column + 2 * kLanes) of the panel for rows n and, where a word holds two steps,
// n + 1; `next` says whether that row exists.
template <class Operand>
inline void pack_neighbours(const Nf4Source& s, std::int64_t n, bool next, std::int64_t column,
                            typename Operand::Element* panel) {
  const std::int64_t e = n * s.weight.k + s.column + column;
  const Neighbours first = decode_neighbours(s.weight, e);
  auto* to = panel + panel_index<Operand>(n - s.depth_begin, column);
  if constexpr (Operand::kStep == 1) {
    store_interleaved(word_of<Operand>(first.even), word_of<Operand>(first.odd), to);
  } else {
    const Neighbours second =
        next ? decode_neighbours(s.weight, e + s.weight.k) : Neighbours{Floats{}, Floats{}};
    store_interleaved(pair_words<Operand>(first.even, second.even),
                      pair_words<Operand>(first.odd, second.odd), to);
  }
}

// Element by element: what the vector paths leave, and zeros where nothing is.
template <class Operand, class Value>
inline void pack_elements(std::int64_t depth, std::int64_t first_column, Value&& value,
                          typename Operand::Element* panel) {
  for (std::int64_t k = 0; k < whole_words<Operand>(depth); ++k) {
    for (std::int64_t j = first_column; j < kPanel; ++j) {
      panel[panel_index<Operand>(k, j)] = Operand::from(value(k, j));
    }
  }
}

}  // namespace nf4_detail

template <class Operand>
inline void pack_nf4_rows(const Nf4Source& s, typename Operand::Element* panel) {
  using namespace nf4_detail;
  const std::int64_t depth = s.depth_end - s.depth_begin;
  if (s.weight.k % kWordCodes == 0 && s.depth_begin % kWordCodes == 0 && depth % kWordCodes == 0) {
    for (std::int64_t column = 0; column < kPanel; column += kLanes) {
      if (column < s.width) {
        pack_row_group<Operand>(s, column, panel);
      } else {
        for (std::int64_t k = 0; k < depth; k += Operand::kStep) {
          store_as(Ints{}, panel + panel_index<Operand>(k, column));
        }
      }
    }
    return;
  }
  pack_elements<Operand>(
      depth, 0,
      [&](std::int64_t k, std::int64_t j) {
        const bool inside = j < s.width && k < depth;
        return inside ? value_at(s.weight, s.column + j, s.depth_begin + k) : 0.0f;
      },
      panel);
}

template <class Operand>
inline void pack_nf4_columns(const Nf4Source& s, typename Operand::Element* panel) {
  using namespace nf4_detail;
  const std::int64_t depth = s.depth_end - s.depth_begin;
  // Rows start at whole bytes only where K is even.
  const std::int64_t whole = s.weight.k % 2 == 0 ? s.width / (2 * kLanes) * 2 * kLanes : 0;
  // A panel's share of a row is 32 bytes, too little for the hardware to see a stream.
  constexpr std::int64_t kRowsAhead = 16;
  const auto fetch = [&s](std::int64_t n) {
    const std::int64_t row = n < s.weight.n ? n : s.weight.n - 1;
    __builtin_prefetch(s.weight.packed + (row * s.weight.k + s.column) / 2);
  };
  for (std::int64_t n = s.depth_begin; n < s.depth_end; n += Operand::kStep) {
    for (std::int64_t step = 0; step < Operand::kStep; ++step) fetch(n + kRowsAhead + step);
    for (std::int64_t column = 0; column < whole; column += 2 * kLanes) {
      pack_neighbours<Operand>(s, n, n + 1 < s.depth_end, column, panel);
    }
  }
  if (whole == kPanel) return;
  pack_elements<Operand>(
      depth, whole,
      [&](std::int64_t k, std::int64_t j) {
        const bool inside = j < s.width && k < depth;
        return inside ? value_at(s.weight, s.depth_begin + k, s.column + j) : 0.0f;
      },
      panel);
}

}  // namespace reprise::cpu::REPRISE_ISA
