// The vocabulary head and its loss in one op: logits are made for a chunk of tokens (or of the
// vocabulary) at a time and never held as a whole; rows whose label is -100 are skipped.
//
//   logits  = x . weight^T                                                   (M, V)
//   nll[m]  = log(sum_v exp(logits[m, v])) - logits[m, labels[m]]
//   loss[params->micro_step] = params->loss_scale * sum over valid m of nll[m]
//   grad_x  = params->loss_scale * (softmax(logits) - onehot(labels)) . weight, 0 where masked
//
// The head is frozen, so it gets no gradient. labels[m] is the target of row m: the caller has
// shifted them. With loss_scale 0 (every label masked) the loss and the gradient are exactly 0.
// The sum of the loss is made in double precision in the order of the rows.
// No output may overlap an input or another output.
#pragma once

#include "reprise/kernels/step_params.h"
#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

inline constexpr std::int32_t kIgnoredLabel = -100;

struct CrossEntropyArgs {
  ComputeType compute = ComputeType::kF32;
  ConstView x;                         // F32 or BF16 [M, C], after the final norm
  ConstView weight;                    // F32 or BF16 [V, C]
  ConstView labels;                    // I32 [M], in [0, V) or kIgnoredLabel
  const StepParams* params = nullptr;  // read when the op runs
  View loss;                           // F32 [accumulate]; only one element is written
  View nll;                            // F32 [M], 0 where masked; not present: not wanted
  View grad_x;                         // F32 [M, C]; not present: no gradient is computed
  Scratch scratch;
};

// lm_head: the whole logits, for sampling and for dumps.
struct LmHeadArgs {
  ComputeType compute = ComputeType::kF32;
  ConstView x;       // F32 or BF16 [M, C]
  ConstView weight;  // F32 or BF16 [V, C]
  View logits;       // F32 [M, V]
  Scratch scratch;
};

Support check(const CrossEntropyArgs& args);
Support check(const LmHeadArgs& args);

}  // namespace reprise
