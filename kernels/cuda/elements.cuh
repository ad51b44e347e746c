// Reading and writing elements whose type is known when a kernel runs, one at a time.
#pragma once

#include <cstdint>

#include "kernels/device/device.h"
#include "reprise/kernels/dtype.h"
#include "reprise/kernels/view.h"

namespace reprise::cuda {

__device__ inline float load(const void* data, DType dtype, std::int64_t index) {
  if (dtype == DType::kBF16) {
    return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
  }
  return static_cast<const float*>(data)[index];
}

// Rounds once, to nearest even.
__device__ inline void store(void* data, DType dtype, std::int64_t index, float value) {
  if (dtype == DType::kBF16) {
    static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(value);
  } else {
    static_cast<float*>(data)[index] = value;
  }
}

// An operand of a product in the precision that products are computed in.
__device__ inline float rounded(float value, ComputeType compute) {
  return compute == ComputeType::kF32 ? value : __bfloat162float(__float2bfloat16_rn(value));
}

// What a kernel needs of a view: no dimensions, which the host has checked.
struct Source {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  Source() = default;
  Source(const ConstView& view) : data(view.data), dtype(view.dtype) {}
  Source(const View& view) : data(view.data), dtype(view.dtype) {}
  __device__ float operator[](std::int64_t index) const { return load(data, dtype, index); }
};

struct Target {
  void* data = nullptr;
  DType dtype = DType::kF32;
  OutputMode mode = OutputMode::kOverwrite;

  Target() = default;
  Target(const View& view, OutputMode output_mode = OutputMode::kOverwrite)
      : data(view.data), dtype(view.dtype), mode(output_mode) {}
  __device__ void put(std::int64_t index, float value) const {
    if (mode == OutputMode::kAccumulate) value += load(data, dtype, index);
    store(data, dtype, index, value);
  }
};

}  // namespace reprise::cuda
