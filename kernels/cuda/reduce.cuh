// Sums over the threads of a warp or of a block, in a fixed order: the same bits every time.
#pragma once

#include "kernels/device/device.h"

namespace reprise::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Every lane gets the sum.
template <class T>
__device__ T warp_sum(T value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, lanes);
  }
  return value;
}

// NaN is ignored beside a number; it shows in the sum that follows.
__device__ inline float warp_max(float value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceWarps = kReduceThreads / kWarp;

// Every thread gets the sum of the block; `shared` may be used again at once.
__device__ inline double block_sum(double value, double (&shared)[kReduceWarps], int thread) {
  value = warp_sum(value);
  if (thread % kWarp == 0) shared[thread / kWarp] = value;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < kReduceWarps; ++warp) sum += shared[warp];
  __syncthreads();
  return sum;
}

__device__ inline float block_max(float value, double (&shared)[kReduceWarps], int thread) {
  value = warp_max(value);
  if (thread % kWarp == 0) shared[thread / kWarp] = static_cast<double>(value);
  __syncthreads();
  float largest = static_cast<float>(shared[0]);
  for (int warp = 1; warp < kReduceWarps; ++warp) {
    largest = fmaxf(largest, static_cast<float>(shared[warp]));
  }
  __syncthreads();
  return largest;
}

}  // namespace reprise::cuda
