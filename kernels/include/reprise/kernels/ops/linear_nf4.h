// The frozen linear layer W[N, K] in NF4, with its bias and LoRA term in the same op, so that a
// device may fuse them.
//
//   forward   u = dropout(x) . A^T                                       (M, R)
//             y (+)= x . dequant(W)^T + bias + scale * u . B^T           (M, N)
//   backward  grad_x (+)= grad_y . dequant(W) + mask * (grad_u . A)      (M, K)
//
// dequant(W) is codebook * absmax in FP32, rounded once to the compute type. Sums are FP32.
// grad_u = scale * grad_y . B comes from lora_backward (ops/lora.h). mask is the dropout factor of
// the forward pass. LoRA: Hu et al., 2021; QLoRA: Dettmers et al., 2023.
// No output may overlap an input or another output.
#pragma once

#include "reprise/kernels/dropout.h"
#include "reprise/kernels/nf4.h"
#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct LoraForward {
  ConstView a;      // F32 [R, K]; not present: no LoRA term
  ConstView b;      // F32 [N, R]
  View u;           // F32 [M, R], written: backward needs it
  float scale = 0;  // alpha / R
  Dropout dropout;  // element (m, k) of x has index m * K + k
};

struct LinearNf4ForwardArgs {
  ComputeType compute = ComputeType::kF32;
  ConstView x;              // F32 or BF16 [M, K]
  Nf4View weight;           // [N, K]
  ConstView cached_weight;  // [N, K] of the compute type, only for --linear cached
  ConstView bias;           // F32 [N]; not present: no bias
  LoraForward lora;
  View y;  // F32 or BF16 [M, N]
  OutputMode mode = OutputMode::kOverwrite;
  Scratch scratch;
};

struct LoraGradX {
  ConstView a;       // F32 [R, K]; not present: no LoRA term
  ConstView grad_u;  // F32 [M, R]
  Dropout dropout;   // as in the forward pass
};

struct LinearNf4BackwardArgs {
  ComputeType compute = ComputeType::kF32;
  ConstView grad_y;         // F32 or BF16 [M, N]
  Nf4View weight;           // [N, K]
  ConstView cached_weight;  // as in the forward pass
  LoraGradX lora;
  View grad_x;  // F32 or BF16 [M, K]
  OutputMode mode = OutputMode::kOverwrite;
  Scratch scratch;
};

Support check(const LinearNf4ForwardArgs& args);
Support check(const LinearNf4BackwardArgs& args);

}  // namespace reprise
