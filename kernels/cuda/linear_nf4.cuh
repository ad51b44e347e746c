// The frozen linear layer as products: forward reads rows of the NF4 weight, backward its columns.
#pragma once

#include "kernels/cuda/plain_product.cuh"
#include "reprise/kernels/nf4.h"

namespace reprise::cuda {

__constant__ float nf4_values[16] = {
    kNf4Codebook[0],  kNf4Codebook[1],  kNf4Codebook[2],  kNf4Codebook[3],
    kNf4Codebook[4],  kNf4Codebook[5],  kNf4Codebook[6],  kNf4Codebook[7],
    kNf4Codebook[8],  kNf4Codebook[9],  kNf4Codebook[10], kNf4Codebook[11],
    kNf4Codebook[12], kNf4Codebook[13], kNf4Codebook[14], kNf4Codebook[15]};

// Element e of a weight: one FP32 product, then the rounding of the compute type.
struct Nf4Elements {
  const std::uint8_t* packed = nullptr;
  const float* absmax = nullptr;
  int block_shift = 6;  // blocks have 2^block_shift elements
  NibbleOrder order = NibbleOrder::kHighFirst;
  ComputeType rounding = ComputeType::kF32;

  __device__ float operator[](std::int64_t e) const {
    const int byte = packed[e / 2];
    const bool high = ((e & 1) == 0) == (order == NibbleOrder::kHighFirst);
    return rounded(nf4_values[high ? byte >> 4 : byte & 15] * absmax[e >> block_shift], rounding);
  }
};

// right(k, n) of the forward product.
struct Nf4Rows {
  Nf4Elements weight;
  std::int64_t k_count = 0;
  __device__ float operator()(std::int64_t k, std::int64_t n) const {
    return weight[n * k_count + k];
  }
};

// right(n, k) of the backward product.
struct Nf4Columns {
  Nf4Elements weight;
  std::int64_t k_count = 0;
  __device__ float operator()(std::int64_t n, std::int64_t k) const {
    return weight[n * k_count + k];
  }
};

struct LinearForwardJob {
  static constexpr Order kLeftOrder = Order::kAlongSum, kRightOrder = Order::kAlongSum;
  std::int64_t rows, columns, steps;  // M, N, K
  Operand left;
  Nf4Rows right;
  LowRank low_rank;
  float scale = 0;
  const float* bias = nullptr;  // null: none
  Target y;

  __device__ bool idle(std::int64_t, std::int64_t) const { return false; }
  __device__ float begin(std::int64_t, std::int64_t j, float low) const {
    return fmaf(scale, low, bias == nullptr ? 0.0f : bias[j]);
  }
  __device__ void store(std::int64_t i, std::int64_t j, float sum) const {
    y.put(i * columns + j, sum);
  }
};

struct LinearBackwardJob {
  static constexpr Order kLeftOrder = Order::kAlongSum, kRightOrder = Order::kAlongOutput;
  std::int64_t rows, columns, steps;  // M, K, N
  Operand left;
  Nf4Columns right;
  LowRank low_rank;
  DeviceDropout dropout;
  Target grad_x;

  __device__ bool idle(std::int64_t, std::int64_t) const { return false; }
  __device__ float begin(std::int64_t i, std::int64_t j, float low) const {
    return low_rank.steps == 0 ? 0.0f : low * dropout.factor(i * columns + j);
  }
  __device__ void store(std::int64_t i, std::int64_t j, float sum) const {
    grad_x.put(i * columns + j, sum);
  }
};

}  // namespace reprise::cuda
