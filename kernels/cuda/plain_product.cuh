// The product behind every plain matrix op:
//   out[i, j] = store(begin(low-rank term) + sum over r of left(i, r) * right(r, j))
// FP32 with one rounding for each product and sum, r ascending: the same arguments give the same
// bits. A block makes a tile of 64 x 64 outputs, a thread 4 x 4 of it, 16 apart, so that stores of
// a warp are neighbours. What differs from op to op is a Job:
//   rows, columns, steps          extents of i, j and r
//   left(i, r), right(r, j)       operands; only called inside the extents
//   kLeftOrder, kRightOrder       which index of an operand is the fastest in memory
//   bool idle(i, count)           whether rows i ... i + count - 1 have nothing to store
//   float begin(i, j, low)        what the sum starts from; low: low_rank.left . low_rank.right
//   void store(i, j, sum)
//   low_rank                      may be missing: a short product with the operands' orders
#pragma once

#include <cstdint>

#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/elements.cuh"

namespace reprise::cuda {

inline constexpr int kTile = 64;   // outputs of a block, in each direction
inline constexpr int kStep = 16;   // of r, in shared memory at a time
inline constexpr int kLanes = 16;  // threads of a block, in each direction
inline constexpr int kProductThreads = kLanes * kLanes;
inline constexpr int kEach = kTile / kLanes;  // outputs of a thread, in each direction

enum class Order { kAlongSum, kAlongOutput };

// Columns are one longer than a tile, against bank conflicts.
struct ProductTiles {
  float left[kStep][kTile + 1];
  float right[kStep][kTile + 1];
};

// A matrix as an operand of a product, by strides in elements. Rounded to the compute type.
struct Operand {
  Source source;
  std::int64_t row_stride = 0, column_stride = 0;
  ComputeType rounding = ComputeType::kF32;

  __device__ float operator()(std::int64_t row, std::int64_t column) const {
    return rounded(source[row * row_stride + column * column_stride], rounding);
  }
};

inline Operand operand(const ConstView& matrix, ComputeType rounding = ComputeType::kF32) {
  return {matrix, matrix.dims[1], 1, rounding};
}
inline Operand transposed(const ConstView& matrix, ComputeType rounding = ComputeType::kF32) {
  return {matrix, 1, matrix.dims[1], rounding};
}

// With the dropout mask of the matrix [M, K] that `values` reads, by the same strides.
struct DroppedOperand {
  Operand values;
  DeviceDropout dropout;

  __device__ float operator()(std::int64_t row, std::int64_t column) const {
    return values(row, column) *
           dropout.factor(row * values.row_stride + column * values.column_stride);
  }
};

// The adapter's share of a product; no steps where there is no adapter.
struct LowRank {
  Operand left, right;
  std::int64_t steps = 0;
};

// Where a block's tile begins and ends.
struct TilePlace {
  std::int64_t row, column, rows, columns;
};

// Copies 16 steps of one operand into shared memory, zeros where it ends. at(output, step).
template <class At>
__device__ void fill_tile(float (&tile)[kStep][kTile + 1], Order order, int thread, const At& at) {
  for (int i = 0; i < kEach; ++i) {
    const bool along_sum = order == Order::kAlongSum;
    const int step = along_sum ? thread % kStep : thread / kTile + i * (kProductThreads / kTile);
    const int output = along_sum ? thread / kStep + i * (kProductThreads / kStep) : thread % kTile;
    tile[step][output] = at(output, step);
  }
}

__device__ inline void multiply_tiles(const ProductTiles& tiles, int thread, int row_groups,
                                      float (&sums)[kEach][kEach]) {
  const int row = thread / kLanes, column = thread % kLanes;
#pragma unroll
  for (int step = 0; step < kStep; ++step) {
    float right[kEach];
#pragma unroll
    for (int b = 0; b < kEach; ++b) right[b] = tiles.right[step][column + b * kLanes];
#pragma unroll
    for (int a = 0; a < kEach; ++a) {
      if (a >= row_groups) continue;  // the same for the whole block
      const float left = tiles.left[step][row + a * kLanes];
#pragma unroll
      for (int b = 0; b < kEach; ++b) sums[a][b] = fmaf(left, right[b], sums[a][b]);
    }
  }
}

template <class Job, class Left, class Right>
__device__ void add_product(const Left& left, const Right& right, std::int64_t steps,
                            const TilePlace& place, int thread, ProductTiles& tiles,
                            float (&sums)[kEach][kEach]) {
  const std::int64_t rows_here = place.rows - place.row;
  const int row_groups =
      rows_here >= kTile ? kEach : static_cast<int>((rows_here + kLanes - 1) / kLanes);
  for (std::int64_t first = 0; first < steps; first += kStep) {
    fill_tile(tiles.left, Job::kLeftOrder, thread, [&](int output, int step) {
      const std::int64_t i = place.row + output, r = first + step;
      return i < place.rows && r < steps ? left(i, r) : 0.0f;
    });
    fill_tile(tiles.right, Job::kRightOrder, thread, [&](int output, int step) {
      const std::int64_t j = place.column + output, r = first + step;
      return j < place.columns && r < steps ? right(r, j) : 0.0f;
    });
    __syncthreads();
    multiply_tiles(tiles, thread, row_groups, sums);
    __syncthreads();
  }
}

// Calls each(i, j, sum) for the outputs of a thread that exist.
template <class Each>
__device__ void for_outputs(const TilePlace& place, int thread, float (&sums)[kEach][kEach],
                            const Each& each) {
#pragma unroll
  for (int a = 0; a < kEach; ++a) {
#pragma unroll
    for (int b = 0; b < kEach; ++b) {
      const std::int64_t i = place.row + thread / kLanes + a * kLanes;
      const std::int64_t j = place.column + thread % kLanes + b * kLanes;
      if (i < place.rows && j < place.columns) each(i, j, sums[a][b]);
    }
  }
}

template <class Job>
__device__ void product_tile(const Job& job, std::int64_t block, int thread, ProductTiles& tiles) {
  const std::int64_t across = (job.columns + kTile - 1) / kTile;
  const TilePlace place = {block / across * kTile, block % across * kTile, job.rows, job.columns};
  if (job.idle(place.row, job.rows - place.row < kTile ? job.rows - place.row : kTile)) return;
  float sums[kEach][kEach] = {};
  if constexpr (requires { job.low_rank; }) {
    add_product<Job>(job.low_rank.left, job.low_rank.right, job.low_rank.steps, place, thread,
                     tiles, sums);
    for_outputs(place, thread, sums,
                [&](std::int64_t i, std::int64_t j, float& sum) { sum = job.begin(i, j, sum); });
  }
  add_product<Job>(job.left, job.right, job.steps, place, thread, tiles, sums);
  for_outputs(place, thread, sums,
              [&](std::int64_t i, std::int64_t j, float& sum) { job.store(i, j, sum); });
}

template <class Job>
__global__ void __launch_bounds__(kProductThreads, 3) plain_product(Job job) {
  REPRISE_SHARED(ProductTiles, tiles);
  product_tile(job, blockIdx.x, static_cast<int>(threadIdx.x), tiles);
}

}  // namespace reprise::cuda
