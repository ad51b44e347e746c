// Reading and writing elements of views as doubles, one at a time: all that the reference ops need.
#pragma once

#include "reprise/kernels/float16.h"
#include "reprise/kernels/nf4.h"
#include "reprise/kernels/view.h"

namespace reprise::reference {

inline double load(const ConstView& view, std::int64_t index) {
  if (view.dtype == DType::kBF16) return to_float(view.as<BFloat16>()[index]);
  return view.as<float>()[index];
}

// Rounds once, to the type of the view.
inline void store(const View& view, std::int64_t index, double value) {
  if (view.dtype == DType::kBF16) {
    view.as<BFloat16>()[index] = to_bfloat16(static_cast<float>(value));
  } else {
    view.as<float>()[index] = static_cast<float>(value);
  }
}

inline void store(const View& view, std::int64_t index, double value, OutputMode mode) {
  store(view, index, mode == OutputMode::kAccumulate ? load(view, index) + value : value);
}

// An operand of a product: rounded to bf16 when that is what products are computed in.
inline double operand(double value, ComputeType compute) {
  if (compute == ComputeType::kF32) return value;
  return to_float(to_bfloat16(static_cast<float>(value)));
}

// Weight (n, k) as products see it. One FP32 product, then the rounding of the compute type.
inline double weight_at(const Nf4View& weight, std::int64_t n, std::int64_t k,
                        ComputeType compute) {
  const std::int64_t element = n * weight.k + k;
  const float code =
      kNf4Codebook[static_cast<std::size_t>(nf4_code(weight.packed, element, weight.order))];
  return operand(code * weight.absmax[element / weight.block_size], compute);
}

}  // namespace reprise::reference
