// The vocabulary head and its loss, for a chunk of rows: logits, then the softmax in place, then
// the product back. Rows whose label is masked are neither computed nor read.
#pragma once

#include "kernels/cuda/plain_product.cuh"
#include "kernels/cuda/reduce.cuh"
#include "reprise/kernels/ops/cross_entropy.h"

namespace reprise::cuda {

struct LmHeadJob {
  static constexpr Order kLeftOrder = Order::kAlongSum, kRightOrder = Order::kAlongSum;
  std::int64_t rows, columns, steps;  // M, V, C
  Operand left;                       // x
  Operand right;                      // weight, transposed
  float* logits;

  __device__ bool idle(std::int64_t, std::int64_t) const { return false; }
  __device__ void store(std::int64_t m, std::int64_t v, float sum) const {
    logits[m * columns + v] = sum;
  }
};

// The labels of a chunk.
struct Labels {
  const std::int32_t* labels;
  __device__ bool masked(std::int64_t row) const { return labels[row] == kIgnoredLabel; }
  __device__ bool all_masked(std::int64_t row, std::int64_t count) const {
    for (std::int64_t i = row; i < row + count; ++i) {
      if (!masked(i)) return false;
    }
    return true;
  }
};

struct LogitsJob {
  static constexpr Order kLeftOrder = Order::kAlongSum, kRightOrder = Order::kAlongSum;
  std::int64_t rows, columns, steps;  // M, V, C
  Operand left;                       // x
  Operand right;                      // weight, transposed
  Labels labels;
  float* logits;

  __device__ bool idle(std::int64_t row, std::int64_t count) const {
    return labels.all_masked(row, count);
  }
  __device__ void store(std::int64_t m, std::int64_t v, float sum) const {
    if (!labels.masked(m)) logits[m * columns + v] = sum;
  }
};

// A row of softmax - onehot; zeros where masked.
struct LogitGrads {
  const float* grads;
  std::int64_t columns;
  Labels labels;
  __device__ float operator()(std::int64_t m, std::int64_t v) const {
    return labels.masked(m) ? 0.0f : grads[m * columns + v];
  }
};

struct HeadGradXJob {
  static constexpr Order kLeftOrder = Order::kAlongSum, kRightOrder = Order::kAlongOutput;
  std::int64_t rows, columns, steps;  // M, C, V
  LogitGrads left;
  Operand right;  // weight
  const StepParams* params;
  float* grad_x;

  __device__ bool idle(std::int64_t, std::int64_t) const { return false; }  // zeros are stored
  __device__ void store(std::int64_t m, std::int64_t c, float sum) const {
    const float scale = params->loss_scale;
    const bool zero = scale == 0.0f || left.labels.masked(m);
    grad_x[m * columns + c] = zero ? 0.0f : scale * sum;
  }
};

struct Softmax {
  std::int64_t columns;  // V
  float* logits;         // becomes softmax - onehot
  Labels labels;
  double* losses;  // of the chunk's rows
  float* nll;      // of the chunk's rows; null: not wanted
};

// One row. The label's own term is kept apart: where the model is certain, softmax - 1 would be
// lost in the rounding, and the sum of the other terms is it exactly.
__device__ inline void softmax_row(const Softmax& p, std::int64_t row, int thread,
                                   double (&shared)[kReduceWarps]) {
  float* logits = p.logits + row * p.columns;
  const std::int64_t label = p.labels.labels[row];
  float largest = -INFINITY;
  for (std::int64_t v = thread; v < p.columns; v += kReduceThreads) {
    largest = fmaxf(largest, logits[v]);
  }
  largest = block_max(largest, shared, thread);
  double others = 0;
  for (std::int64_t v = thread; v < p.columns; v += kReduceThreads) {
    if (v != label) others += static_cast<double>(expf(logits[v] - largest));
  }
  others = block_sum(others, shared, thread);
  const float at_label = logits[label];
  const double total = others + exp(static_cast<double>(at_label - largest));
  const double below = static_cast<double>(largest) - static_cast<double>(at_label);
  __syncthreads();  // the label's logit has been read by all
  const auto inverse = static_cast<float>(1.0 / total);
  for (std::int64_t v = thread; v < p.columns; v += kReduceThreads) {
    logits[v] =
        v == label ? static_cast<float>(-others / total) : expf(logits[v] - largest) * inverse;
  }
  if (thread != 0) return;
  // total is 1 + others where the label is the likeliest.
  const double loss = below == 0 ? log1p(others) : below + log(total);
  p.losses[row] = loss;
  if (p.nll != nullptr) p.nll[row] = static_cast<float>(loss);
}

static __global__ void __launch_bounds__(kReduceThreads) cross_entropy_softmax(Softmax p) {
  REPRISE_SHARED(double[kReduceWarps], shared);
  const std::int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  if (!p.labels.masked(row)) {
    softmax_row(p, row, thread, shared);
  } else if (thread == 0) {
    p.losses[row] = 0;
    if (p.nll != nullptr) p.nll[row] = 0;
  }
}

// One thread: the sum is made in the order of the rows.
static __global__ void cross_entropy_loss(const double* losses, std::int64_t rows,
                                          const StepParams* params, float* loss) {
  double sum = 0;
  for (std::int64_t m = 0; m < rows; ++m) sum += losses[m];
  const auto scale = static_cast<double>(params->loss_scale);
  loss[params->micro_step] = scale == 0 ? 0.0f : static_cast<float>(scale * sum);
}

}  // namespace reprise::cuda
