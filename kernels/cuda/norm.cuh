// RMS normalisation, a warp for each row. Sums are FP32: a lane's own, then the lanes'.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"

namespace reprise::cuda {

inline constexpr int kNormWarps = 4;  // rows of a block

struct NormForward {
  std::int64_t rows, width;
  const float* x;
  const float* weight;
  float eps;
  Target y;
  float* inv_rms;
};

struct NormBackward {
  std::int64_t rows, width;
  const float* grad_y;
  const float* x;
  const float* weight;
  const float* inv_rms;
  Target grad_x;
};

__device__ inline void norm_forward_row(const NormForward& p, std::int64_t row, int lane) {
  const float* x = p.x + row * p.width;
  float squares = 0;
  for (std::int64_t c = lane; c < p.width; c += kWarp) squares = fmaf(x[c], x[c], squares);
  const float mean = warp_sum(squares) / static_cast<float>(p.width);
  const float inv_rms = 1.0f / sqrtf(mean + p.eps);
  if (lane == 0) p.inv_rms[row] = inv_rms;
  for (std::int64_t c = lane; c < p.width; c += kWarp) {
    p.y.put(row * p.width + c, x[c] * inv_rms * p.weight[c]);
  }
}

__device__ inline void norm_backward_row(const NormBackward& p, std::int64_t row, int lane) {
  const float* x = p.x + row * p.width;
  const float* grad_y = p.grad_y + row * p.width;
  const float inv_rms = p.inv_rms[row];
  float dot = 0;
  for (std::int64_t c = lane; c < p.width; c += kWarp) {
    dot = fmaf(grad_y[c] * p.weight[c], x[c], dot);
  }
  const float mean = warp_sum(dot) / static_cast<float>(p.width);
  const float along = inv_rms * inv_rms * mean;
  for (std::int64_t c = lane; c < p.width; c += kWarp) {
    p.grad_x.put(row * p.width + c, inv_rms * (grad_y[c] * p.weight[c] - x[c] * along));
  }
}

static __global__ void __launch_bounds__(kNormWarps* kWarp) rms_norm_forward_plain(NormForward p) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kNormWarps + thread / kWarp;
  if (row < p.rows) norm_forward_row(p, row, thread % kWarp);
}

static __global__ void __launch_bounds__(kNormWarps* kWarp)
    rms_norm_backward_plain(NormBackward p) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kNormWarps + thread / kWarp;
  if (row < p.rows) norm_backward_row(p, row, thread % kWarp);
}

}  // namespace reprise::cuda
