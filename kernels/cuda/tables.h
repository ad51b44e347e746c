// The parts of cuda_ops().
#pragma once

#include "reprise/kernels/op_table.h"

namespace reprise::cuda {

inline constexpr const char* kPlain = "cuda.plain";

void add_linear_nf4(OpTable& table);     // linear_nf4_forward, linear_nf4_backward
void add_lora(OpTable& table);           // lora_backward
void add_attention(OpTable& table);      // attention_forward, attention_backward
void add_norm(OpTable& table);           // rms_norm_forward, rms_norm_backward
void add_pointwise(OpTable& table);      // embedding_forward, rope, swiglu_*, residual, fill
void add_cross_entropy(OpTable& table);  // cross_entropy, lm_head
void add_optimizer(OpTable& table);      // grad_norm, clip, adamw

}  // namespace reprise::cuda
