// Operands of the library products: pieces of scratch, and what fills them on the workers of the
// pool.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/operand_kernels.h"
#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/dropout.h"
#include "reprise/kernels/nf4.h"
#include "reprise/kernels/thread_pool.h"
#include "reprise/kernels/view.h"

namespace reprise::cpu {

inline constexpr std::int64_t kGrain = 4096;  // elements; a cache line or more for each worker

// Hands out pieces of a scratch buffer, or counts them when it has none. One function lays out an
// op's scratch for both, so that the sizes cannot disagree.
class ScratchPieces {
 public:
  explicit ScratchPieces(void* base) : base_(static_cast<std::byte*>(base)) {}

  View take(DType dtype, std::int64_t rows, std::int64_t columns) {
    const View view = {at(), dtype, {rows, columns}};
    advance(view.bytes());
    return view;
  }
  // The library's own scratch comes last; it is as large as its largest product needs.
  Scratch rest(std::int64_t bytes) {
    const Scratch scratch = {at(), bytes};
    advance(bytes);
    return scratch;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  void* at() const { return base_ == nullptr ? nullptr : base_ + bytes_; }
  void advance(std::int64_t bytes) { bytes_ += (bytes + 63) / 64 * 64; }

  std::byte* base_;
  std::int64_t bytes_ = 0;
};

class Operands {
 public:
  Operands(const OperandKernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  void dequantize(const Nf4View& weight, const View& out) const {
    pool_.parallel_ranges(weight.count(), std::max(kGrain, weight.block_size),
                          [&](std::int64_t begin, std::int64_t end, int) {
                            if (out.dtype == DType::kBF16) {
                              kernels_.dequantize_bf16(weight, begin, end,
                                                       out.as<BFloat16>() + begin);
                            } else {
                              kernels_.dequantize_f32(weight, begin, end, out.as<float>() + begin);
                            }
                          });
  }

  void convert(const ConstView& in, const View& out) const {
    pool_.parallel_ranges(in.count(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      if (out.dtype == DType::kBF16) {
        kernels_.narrow(in.as<float>() + begin, end - begin, out.as<BFloat16>() + begin);
      } else {
        kernels_.widen(in.as<BFloat16>() + begin, end - begin, out.as<float>() + begin);
      }
    });
  }

  // out = dropout(in), both of any type; the product with the factor is FP32.
  void drop(const ConstView& in, const Dropout& dropout, const View& out) const {
    pool_.parallel_ranges(in.count(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float value =
            in.dtype == DType::kBF16 ? to_float(in.as<BFloat16>()[i]) : in.as<float>()[i];
        const float kept = value * dropout_factor(dropout, i);
        if (out.dtype == DType::kBF16) {
          out.as<BFloat16>()[i] = to_bfloat16(kept);
        } else {
          out.as<float>()[i] = kept;
        }
      }
    });
  }

 private:
  const OperandKernels& kernels_;
  ThreadPool& pool_;
};

// The same operand in another type: the operand itself where no conversion is needed.
struct Converted {
  ConstView from;
  View piece;  // not present: `from` is used

  Converted(const ConstView& operand, DType dtype, ScratchPieces& pieces) : from(operand) {
    if (operand.present() && operand.dtype != dtype) {
      piece = pieces.take(dtype, operand.dims[0], operand.dims[1]);
    }
  }
  ConstView view() const { return piece.present() ? ConstView(piece) : from; }
  void fill(const Operands& operands) const {
    if (piece.present()) operands.convert(from, piece);
  }
};

// The frozen weight in the compute type.
struct FrozenWeight {
  const Nf4View* nf4;
  ConstView cached;
  View piece;

  FrozenWeight(const Nf4View& weight, const ConstView& cached_weight, LinearMode mode, DType dtype,
               ScratchPieces& pieces)
      : nf4(&weight), cached(cached_weight) {
    if (mode == LinearMode::kDequant) piece = pieces.take(dtype, weight.n, weight.k);
  }
  ConstView view() const { return piece.present() ? ConstView(piece) : cached; }
  void fill(const Operands& operands) const {
    if (piece.present()) operands.dequantize(*nf4, piece);
  }
};

}  // namespace reprise::cpu
