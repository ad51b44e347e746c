// Causal attention, a warp for each query row or key row. 32 partners are looked at together: each
// lane makes the score of one, then all lanes add up the 32 weighted rows, a lane some dimensions.
// Scores are FP32 from operands as they are stored; nothing of size S x S exists.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "reprise/kernels/ops/attention.h"

namespace reprise::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarp;
inline constexpr std::int64_t kMaxHeadDim = 256;
inline constexpr int kDims = kMaxHeadDim / kWarp;  // of a lane

// Where the rows of a head lie. Rows of queries are counted as lse is laid out: (b, head, s).
struct HeadPlace {
  std::int64_t batch, head, group, position;

  __device__ static HeadPlace of_query(const AttentionShape& shape, std::int64_t row) {
    const std::int64_t head = row / shape.seq % shape.heads;
    return {row / shape.seq / shape.heads, head, head / (shape.heads / shape.kv_heads),
            row % shape.seq};
  }
  __device__ static HeadPlace of_key(const AttentionShape& shape, std::int64_t row) {
    return {row / shape.seq / shape.kv_heads, 0, row / shape.seq % shape.kv_heads, row % shape.seq};
  }
  // Index of dimension 0 of position s of this head, and of its group.
  __device__ std::int64_t query(const AttentionShape& shape, std::int64_t s) const {
    return ((batch * shape.seq + s) * shape.heads + head) * shape.head_dim;
  }
  __device__ std::int64_t key(const AttentionShape& shape, std::int64_t s) const {
    return ((batch * shape.seq + s) * shape.kv_heads + group) * shape.head_dim;
  }
  __device__ std::int64_t row(const AttentionShape& shape, std::int64_t s) const {
    return (batch * shape.heads + head) * shape.seq + s;
  }
};

// A row of two matrices.
__device__ inline float dot(const Source& a, std::int64_t a_row, const Source& b,
                            std::int64_t b_row, std::int64_t count) {
  float sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum = fmaf(a[a_row + d], b[b_row + d], sum);
  return sum;
}

// sums[d] += weight * row[d], for the dimensions of a lane.
__device__ inline void add_row(float (&sums)[kDims], float weight, const Source& source,
                               std::int64_t row, std::int64_t head_dim, int lane) {
#pragma unroll
  for (int i = 0; i < kDims; ++i) {
    const std::int64_t d = lane + i * kWarp;
    if (d < head_dim) sums[i] = fmaf(weight, source[row + d], sums[i]);
  }
}

__device__ inline void store_row(const Target& target, const float (&sums)[kDims], std::int64_t row,
                                 std::int64_t head_dim, int lane) {
#pragma unroll
  for (int i = 0; i < kDims; ++i) {
    const std::int64_t d = lane + i * kWarp;
    if (d < head_dim) target.put(row + d, sums[i]);
  }
}

__device__ inline int partners(std::int64_t left) {
  return left < kWarp ? static_cast<int>(left) : kWarp;
}

struct AttentionForward {
  AttentionShape shape;
  Source q, k, v;
  Target out;
  float* lse;
};

// `scores`: shared by the lanes of the warp.
__device__ inline void attention_forward_row(const AttentionForward& p, std::int64_t row, int lane,
                                             float (&scores)[kWarp]) {
  const AttentionShape& shape = p.shape;
  const HeadPlace place = HeadPlace::of_query(shape, row);
  const std::int64_t query = place.query(shape, place.position);
  float sums[kDims] = {};
  float largest = -INFINITY, total = 0;
  for (std::int64_t first = 0; first <= place.position; first += kWarp) {
    const int count = partners(place.position + 1 - first);
    scores[lane] = lane < count ? shape.scale * dot(p.q, query, p.k, place.key(shape, first + lane),
                                                    shape.head_dim)
                                : -INFINITY;
    __syncwarp();
    const float before = largest;
    for (int j = 0; j < count; ++j) largest = fmaxf(largest, scores[j]);
    const float shrink = expf(before - largest);  // 0 the first time
    total *= shrink;
#pragma unroll
    for (float& sum : sums) sum *= shrink;
    const float weight = expf(scores[lane] - largest);
    __syncwarp();
    scores[lane] = weight;
    __syncwarp();
    for (int j = 0; j < count; ++j) {
      total += scores[j];
      add_row(sums, scores[j], p.v, place.key(shape, first + j), shape.head_dim, lane);
    }
    __syncwarp();
  }
#pragma unroll
  for (float& sum : sums) sum /= total;
  store_row(p.out, sums, query, shape.head_dim, lane);
  if (lane == 0) p.lse[row] = largest + logf(total);
}

struct AttentionBackward {
  AttentionShape shape;
  Source grad_out, q, k, v, out;
  const float* lse;
  float* delta;  // like lse: grad_out . out
  Target grad_q, grad_k, grad_v;
};

struct ScoreGrad {
  float probability, grad;  // grad: of the dot product of query and key
};

// Query position i and key position j of a head.
__device__ inline ScoreGrad score_grad(const AttentionBackward& p, const HeadPlace& place,
                                       std::int64_t i, std::int64_t j) {
  const std::int64_t query = place.query(p.shape, i), key = place.key(p.shape, j);
  const std::int64_t row = place.row(p.shape, i), count = p.shape.head_dim;
  const float score = p.shape.scale * dot(p.q, query, p.k, key, count);
  const float probability = expf(score - p.lse[row]);
  const float grad_probability = dot(p.grad_out, query, p.v, key, count);
  return {probability, probability * (grad_probability - p.delta[row]) * p.shape.scale};
}

__device__ inline void grad_q_row(const AttentionBackward& p, std::int64_t row, int lane,
                                  float (&grads)[kWarp]) {
  const HeadPlace place = HeadPlace::of_query(p.shape, row);
  float sums[kDims] = {};
  for (std::int64_t first = 0; first <= place.position; first += kWarp) {
    const int count = partners(place.position + 1 - first);
    if (lane < count) grads[lane] = score_grad(p, place, place.position, first + lane).grad;
    __syncwarp();
    for (int j = 0; j < count; ++j) {
      add_row(sums, grads[j], p.k, place.key(p.shape, first + j), p.shape.head_dim, lane);
    }
    __syncwarp();
  }
  store_row(p.grad_q, sums, place.query(p.shape, place.position), p.shape.head_dim, lane);
}

// Adds up the heads of the group and, within a head, the queries that see the key.
__device__ inline void grad_kv_row(const AttentionBackward& p, std::int64_t row, int lane,
                                   ScoreGrad (&grads)[kWarp]) {
  HeadPlace place = HeadPlace::of_key(p.shape, row);
  const std::int64_t heads = p.shape.heads / p.shape.kv_heads;
  float sums_k[kDims] = {}, sums_v[kDims] = {};
  for (std::int64_t h = 0; h < heads; ++h) {
    place.head = place.group * heads + h;
    for (std::int64_t first = place.position; first < p.shape.seq; first += kWarp) {
      const int count = partners(p.shape.seq - first);
      if (lane < count) grads[lane] = score_grad(p, place, first + lane, place.position);
      __syncwarp();
      for (int i = 0; i < count; ++i) {
        const std::int64_t query = place.query(p.shape, first + i);
        add_row(sums_k, grads[i].grad, p.q, query, p.shape.head_dim, lane);
        add_row(sums_v, grads[i].probability, p.grad_out, query, p.shape.head_dim, lane);
      }
      __syncwarp();
    }
  }
  const std::int64_t key = place.key(p.shape, place.position);
  store_row(p.grad_k, sums_k, key, p.shape.head_dim, lane);
  store_row(p.grad_v, sums_v, key, p.shape.head_dim, lane);
}

static __global__ void __launch_bounds__(kAttentionThreads)
    attention_forward_plain(AttentionForward p) {
  REPRISE_SHARED(float[kAttentionWarps][kWarp], scores);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kAttentionWarps + warp;
  if (row >= p.shape.batch * p.shape.heads * p.shape.seq) return;
  attention_forward_row(p, row, static_cast<int>(threadIdx.x) % kWarp, scores[warp]);
}

// A thread for each row.
static __global__ void __launch_bounds__(kAttentionThreads)
    attention_delta_plain(AttentionBackward p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kAttentionThreads + threadIdx.x;
  if (row >= p.shape.batch * p.shape.heads * p.shape.seq) return;
  const HeadPlace place = HeadPlace::of_query(p.shape, row);
  const std::int64_t query = place.query(p.shape, place.position);
  p.delta[row] = dot(p.grad_out, query, p.out, query, p.shape.head_dim);
}

static __global__ void __launch_bounds__(kAttentionThreads)
    attention_grad_q_plain(AttentionBackward p) {
  REPRISE_SHARED(float[kAttentionWarps][kWarp], grads);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kAttentionWarps + warp;
  if (row >= p.shape.batch * p.shape.heads * p.shape.seq) return;
  grad_q_row(p, row, static_cast<int>(threadIdx.x) % kWarp, grads[warp]);
}

static __global__ void __launch_bounds__(kAttentionThreads)
    attention_grad_kv_plain(AttentionBackward p) {
  REPRISE_SHARED(ScoreGrad[kAttentionWarps][kWarp], grads);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kAttentionWarps + warp;
  if (row >= p.shape.batch * p.shape.kv_heads * p.shape.seq) return;
  grad_kv_row(p, row, static_cast<int>(threadIdx.x) % kWarp, grads[warp]);
}

}  // namespace reprise::cuda
