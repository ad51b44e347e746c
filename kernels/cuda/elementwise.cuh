// Kernels without any exchange between threads: job(i) for every i below a count.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace reprise::cuda {

inline constexpr int kElementThreads = 256;
inline constexpr std::int64_t kElementBlocks = 2048;  // at most; threads then take several elements

template <class Job>
__global__ void __launch_bounds__(kElementThreads) elementwise(std::int64_t count, Job job) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < count; i += stride) job(i);
}

template <class Job>
void launch_elementwise(const char* name, std::int64_t count, const Job& job,
                        const Execution& execution) {
  const std::int64_t blocks = std::min(ceil_div(count, kElementThreads), kElementBlocks);
  launch(name, elementwise<Job>, row_of_blocks(blocks, kElementThreads, execution), count, job);
}

}  // namespace reprise::cuda
