// lora_backward: gradients of the LoRA matrices, and the gradient of u that the input gradient
// needs (ops/linear_nf4.h).
//
//   grad_u     = scale * grad_y . B                 (M, R)   overwritten
//   grad_a (+)= grad_u^T . dropout(x)               (R, K)
//   grad_b (+)= scale * grad_y^T . u                (N, R)
//
// Sums over M are FP32 in a fixed order: the same arguments give the same bits.
// No output may overlap an input or another output.
#pragma once

#include "reprise/kernels/dropout.h"
#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct LoraBackwardArgs {
  ComputeType compute = ComputeType::kF32;
  ConstView grad_y;  // F32 or BF16 [M, N]
  ConstView x;       // F32 or BF16 [M, K], the layer's input
  ConstView u;       // F32 [M, R], from the forward pass
  ConstView a;       // F32 [R, K]
  ConstView b;       // F32 [N, R]
  float scale = 0;
  Dropout dropout;
  View grad_u;                               // F32 [M, R]
  View grad_a;                               // F32 [R, K]
  View grad_b;                               // F32 [N, R]
  OutputMode mode = OutputMode::kOverwrite;  // of grad_a and grad_b
  Scratch scratch;
};

Support check(const LoraBackwardArgs& args);

}  // namespace reprise
