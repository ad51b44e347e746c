// The parts of reference_ops().
#pragma once

#include "reprise/kernels/op_table.h"

namespace reprise::reference {

void add_linear(OpTable& table);     // linear_nf4_forward, linear_nf4_backward, lora_backward
void add_attention(OpTable& table);  // attention_forward, attention_backward
void add_norm(OpTable& table);       // rms_norm_forward, rms_norm_backward
void add_pointwise(OpTable& table);  // embedding_forward, rope, swiglu_*, residual, fill
void add_loss(OpTable& table);       // cross_entropy, lm_head
void add_update(OpTable& table);     // grad_norm, clip, adamw

}  // namespace reprise::reference
