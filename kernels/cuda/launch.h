// Launching kernels: the one way, checked, and captured into a graph when the stream is capturing.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cuda/cuda_check.h"
#include "kernels/device/device.h"
#include "reprise/kernels/error.h"
#include "reprise/kernels/execution.h"

namespace reprise::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::int64_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

// `name` is what graphs, traces and errors call the kernel.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape, Args&&... args) {
  simt::register_kernel(kernel, name);
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = shape.stream;
  cuda_check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), name);
}

inline cudaStream_t stream_of(const Execution& execution) {
  return static_cast<cudaStream_t>(execution.stream);
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// `blocks` in a row, each of `threads`.
inline LaunchShape row_of_blocks(std::int64_t blocks, int threads, const Execution& execution) {
  require(blocks > 0 && blocks <= 0x7fffffff, "a grid must have from 1 to 2^31 - 1 blocks");
  return {.grid = dim3(static_cast<unsigned>(blocks)),
          .block = dim3(static_cast<unsigned>(threads)),
          .stream = stream_of(execution)};
}

}  // namespace reprise::cuda
