// What each instruction set's build of the *_isa.cpp files offers: functions that append its
// implementations to a table. cpu_ops() calls them from the best set down to the generic one.
#pragma once

#include "reprise/kernels/op_table.h"

namespace reprise::cpu {

namespace generic {
void append_linear(OpTable& table);
void append_lora(OpTable& table);
void append_attention(OpTable& table);
void append_norm(OpTable& table);
void append_pointwise(OpTable& table);      // embedding, rope, swiglu, residual, fill
void append_optimizer(OpTable& table);      // grad_norm, clip, adamw
void append_cross_entropy(OpTable& table);  // and lm_head
}  // namespace generic

namespace avx2 {
void append_linear(OpTable& table);
void append_lora(OpTable& table);
void append_attention(OpTable& table);
void append_norm(OpTable& table);
void append_pointwise(OpTable& table);
void append_optimizer(OpTable& table);
void append_cross_entropy(OpTable& table);
}  // namespace avx2

namespace avx512 {
void append_linear(OpTable& table);
void append_lora(OpTable& table);
void append_attention(OpTable& table);
void append_norm(OpTable& table);
void append_pointwise(OpTable& table);
void append_optimizer(OpTable& table);
void append_cross_entropy(OpTable& table);
}  // namespace avx512

namespace avx512_bf16 {
void append_linear(OpTable& table);
void append_lora(OpTable& table);
void append_attention(OpTable& table);
void append_norm(OpTable& table);
void append_pointwise(OpTable& table);
void append_optimizer(OpTable& table);
void append_cross_entropy(OpTable& table);
}  // namespace avx512_bf16

namespace amx {
void append_linear(OpTable& table);
void append_lora(OpTable& table);
void append_attention(OpTable& table);
void append_norm(OpTable& table);
void append_pointwise(OpTable& table);
void append_optimizer(OpTable& table);
void append_cross_entropy(OpTable& table);
}  // namespace amx

}  // namespace reprise::cpu
