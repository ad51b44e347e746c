// The adapter's products. The rank is the row index i of each of them, so that the rows of a tile
// that a small rank leaves empty are skipped.
#pragma once

#include "kernels/cuda/plain_product.cuh"

namespace reprise::cuda {

// u[m, r] = sum over k of a[r, k] * dropout(x)[m, k]
struct LoraUJob {
  static constexpr Order kLeftOrder = Order::kAlongSum, kRightOrder = Order::kAlongSum;
  std::int64_t rows, columns, steps;  // R, M, K
  Operand left;                       // a
  DroppedOperand right;               // x, transposed
  float* u;

  __device__ bool idle(std::int64_t, std::int64_t) const { return false; }
  __device__ void store(std::int64_t r, std::int64_t m, float sum) const { u[m * rows + r] = sum; }
};

// grad_u[m, r] = scale * sum over n of b[n, r] * grad_y[m, n]
struct LoraGradUJob {
  static constexpr Order kLeftOrder = Order::kAlongOutput, kRightOrder = Order::kAlongSum;
  std::int64_t rows, columns, steps;  // R, M, N
  Operand left;                       // b, transposed
  Operand right;                      // grad_y, transposed
  float scale;
  float* grad_u;

  __device__ bool idle(std::int64_t, std::int64_t) const { return false; }
  __device__ void store(std::int64_t r, std::int64_t m, float sum) const {
    grad_u[m * rows + r] = scale * sum;
  }
};

// grad_a[r, k] = sum over m of grad_u[m, r] * dropout(x)[m, k]
struct LoraGradAJob {
  static constexpr Order kLeftOrder = Order::kAlongOutput, kRightOrder = Order::kAlongOutput;
  std::int64_t rows, columns, steps;  // R, K, M
  Operand left;                       // grad_u, transposed
  DroppedOperand right;               // x
  Target grad_a;

  __device__ bool idle(std::int64_t, std::int64_t) const { return false; }
  __device__ void store(std::int64_t r, std::int64_t k, float sum) const {
    grad_a.put(r * columns + k, sum);
  }
};

// grad_b[n, r] = scale * sum over m of u[m, r] * grad_y[m, n]
struct LoraGradBJob {
  static constexpr Order kLeftOrder = Order::kAlongOutput, kRightOrder = Order::kAlongOutput;
  std::int64_t rows, columns, steps;  // R, N, M
  Operand left;                       // u, transposed
  Operand right;                      // grad_y
  float scale;
  Target grad_b;

  __device__ bool idle(std::int64_t, std::int64_t) const { return false; }
  __device__ void store(std::int64_t r, std::int64_t n, float sum) const {
    grad_b.put(n * rows + r, scale * sum);
  }
};

}  // namespace reprise::cuda
