// Causal attention with grouped key/value heads (Ainslie et al., 2023); query head h reads
// key/value head h / (heads / kv_heads). Online softmax (Dao et al., FlashAttention, 2022): no
// S x S matrix is ever in memory.
//
//   out = softmax(scale * q . k^T, keys <= query) . v
//   lse[b, h, s] = log of the sum of the exponentials of row s, natural logarithm
//
// backward recomputes the probabilities from lse; all three gradients are overwritten. Row b * S +
// s of each operand belongs to position s of sequence b; nothing crosses sequences.
// No output may overlap an input or another output.
#pragma once

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct AttentionShape {
  std::int64_t batch = 0;     // B
  std::int64_t seq = 0;       // S
  std::int64_t heads = 0;     // H
  std::int64_t kv_heads = 0;  // G, divides H
  std::int64_t head_dim = 0;  // D
  float scale = 0;            // 1 / sqrt(D)
};

struct AttentionForwardArgs {
  ComputeType compute = ComputeType::kF32;
  AttentionShape shape;
  ConstView q;  // F32 or BF16 [B * S, H * D], rotated
  ConstView k;  // same type [B * S, G * D], rotated
  ConstView v;  // same type [B * S, G * D]
  View out;     // same type [B * S, H * D]
  View lse;     // F32 [B, H, S]
  Scratch scratch;
};

struct AttentionBackwardArgs {
  ComputeType compute = ComputeType::kF32;
  AttentionShape shape;
  ConstView grad_out;  // F32 or BF16 [B * S, H * D]
  ConstView q, k, v;   // as in the forward pass
  ConstView out;       // as in the forward pass
  ConstView lse;       // F32 [B, H, S]
  View grad_q;         // type of q [B * S, H * D], of the rotated q
  View grad_k;         // type of q [B * S, G * D], of the rotated k
  View grad_v;         // type of q [B * S, G * D]
  Scratch scratch;
};

Support check(const AttentionForwardArgs& args);
Support check(const AttentionBackwardArgs& args);

}  // namespace reprise
