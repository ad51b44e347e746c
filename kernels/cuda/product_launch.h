// Launches plain_product for a job.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/plain_product.cuh"

namespace reprise::cuda {

template <class Job>
void launch_product(const char* name, const Job& job, const Execution& execution) {
  const std::int64_t tiles = ceil_div(job.rows, kTile) * ceil_div(job.columns, kTile);
  launch(name, plain_product<Job>, row_of_blocks(tiles, kProductThreads, execution), job);
}

}  // namespace reprise::cuda
