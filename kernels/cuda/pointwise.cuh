// The ops that work element by element. A job reads all it needs of its elements before it writes
// any, so that outputs may be the memory of inputs.
#pragma once

#include "kernels/cuda/elements.cuh"

namespace reprise::cuda {

struct EmbeddingJob {
  const std::int32_t* ids;
  Source table;
  std::int64_t width;
  float* y;
  __device__ void operator()(std::int64_t i) const {
    y[i] = table[static_cast<std::int64_t>(ids[i / width]) * width + i % width];
  }
};

// i counts pairs: (row, head, dimension below D / 2).
struct RopeJob {
  Source x;
  const float* table;
  std::int64_t seq, half, heads;
  float turn;  // 1, or -1 the other way
  Target y;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t d = i % half, head = i / half;  // head counts the heads of all rows
    const std::int64_t angle = (head / heads % seq * half + d) * 2;
    const float cosine = table[angle], sine = turn * table[angle + 1];
    const std::int64_t first = head * 2 * half + d, second = first + half;
    const float a = x[first], b = x[second];
    y.put(first, a * cosine - b * sine);
    y.put(second, b * cosine + a * sine);
  }
};

__device__ inline float sigmoid(float t) { return 1.0f / (1.0f + expf(-t)); }

struct SwigluForwardJob {
  Source gate, up;
  Target y;
  __device__ void operator()(std::int64_t i) const {
    const float g = gate[i];
    y.put(i, g * sigmoid(g) * up[i]);
  }
};

struct SwigluBackwardJob {
  Source grad_y, gate, up;
  Target grad_gate, grad_up;
  __device__ void operator()(std::int64_t i) const {
    const float grad = grad_y[i], g = gate[i], u = up[i], s = sigmoid(g);
    grad_up.put(i, grad * g * s);
    grad_gate.put(i, grad * u * s * (1.0f + g * (1.0f - s)));
  }
};

struct ResidualJob {
  const float* a;
  Source b;
  float* y;
  __device__ void operator()(std::int64_t i) const { y[i] = a[i] + b[i]; }
};

struct FillJob {
  float* x;
  float value;
  __device__ void operator()(std::int64_t i) const { x[i] = value; }
};

}  // namespace reprise::cuda
