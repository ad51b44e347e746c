// The norm of the gradient, the decision about the update, and AdamW.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "reprise/kernels/step_params.h"

namespace reprise::cuda {

// Each block sums every gridDim.x-th group of 256 squares; the number of blocks depends on the
// count alone, and so do the bits.
static __global__ void __launch_bounds__(kReduceThreads)
    grad_norm_partials(const float* grads, std::int64_t count, double* partials) {
  REPRISE_SHARED(double[kReduceWarps], shared);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kReduceThreads;
  double squares = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kReduceThreads + thread; i < count;
       i += stride) {
    const auto g = static_cast<double>(grads[i]);
    squares += g * g;
  }
  squares = block_sum(squares, shared, thread);
  if (thread == 0) partials[blockIdx.x] = squares;
}

static __global__ void __launch_bounds__(kReduceThreads)
    grad_norm_plain(const double* partials, std::int64_t count, float* norm) {
  REPRISE_SHARED(double[kReduceWarps], shared);
  const int thread = static_cast<int>(threadIdx.x);
  double squares = 0;
  for (std::int64_t i = thread; i < count; i += kReduceThreads) squares += partials[i];
  squares = block_sum(squares, shared, thread);
  if (thread == 0) *norm = static_cast<float>(sqrt(squares));
}

__device__ inline bool is_finite(float value) {
  return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

// One thread: there is one loss for each micro-step.
static __global__ void clip_plain(const float* norm, const float* loss, std::int64_t losses,
                                  float max_norm, float* decision) {
  bool finite = is_finite(*norm);
  for (std::int64_t i = 0; i < losses; ++i) finite = finite && is_finite(loss[i]);
  const double limited = static_cast<double>(max_norm) / (static_cast<double>(*norm) + 1e-6);
  decision[0] = max_norm > 0 && limited < 1 ? static_cast<float>(limited) : 1.0f;
  decision[1] = finite ? 1.0f : 0.0f;
}

struct AdamW {
  std::int64_t count;
  float* params;
  const float* grads;
  float* exp_avg;
  float* exp_avg_sq;
  const float* decision;
  const StepParams* step_params;
  float beta1, beta2, eps, weight_decay;
};

// What is the same for every element.
struct AdamWStep {
  float grad_scale, decay, step_size, root_correction, rest1, rest2;
};

__device__ inline AdamWStep adamw_step(const AdamW& p) {
  const auto lr = static_cast<double>(p.step_params->learning_rate);
  const auto step = static_cast<double>(p.step_params->step);
  const auto beta1 = static_cast<double>(p.beta1), beta2 = static_cast<double>(p.beta2);
  return {.grad_scale = p.decision[0],
          .decay = static_cast<float>(1.0 - lr * static_cast<double>(p.weight_decay)),
          .step_size = static_cast<float>(lr / (1.0 - pow(beta1, step))),
          .root_correction = static_cast<float>(sqrt(1.0 - pow(beta2, step))),
          .rest1 = static_cast<float>(1.0 - beta1),
          .rest2 = static_cast<float>(1.0 - beta2)};
}

__device__ inline void adamw_element(const AdamW& p, const AdamWStep& step, std::int64_t i) {
  const float g = step.grad_scale * p.grads[i];
  const float m = p.beta1 * p.exp_avg[i] + step.rest1 * g;
  const float v = p.beta2 * p.exp_avg_sq[i] + step.rest2 * g * g;
  p.exp_avg[i] = m;
  p.exp_avg_sq[i] = v;
  p.params[i] =
      p.params[i] * step.decay - step.step_size * (m / (sqrtf(v) / step.root_correction + p.eps));
}

static __global__ void __launch_bounds__(kReduceThreads) adamw_plain(AdamW p) {
  if (p.decision[1] == 0.0f) return;  // the whole grid
  REPRISE_SHARED(AdamWStep, step);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) step = adamw_step(p);
  __syncthreads();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kReduceThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kReduceThreads + thread;
       i < p.count; i += stride) {
    adamw_element(p, step, i);
  }
}

}  // namespace reprise::cuda
