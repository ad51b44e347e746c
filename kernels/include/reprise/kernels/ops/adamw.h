// AdamW with decoupled weight decay (Loshchilov and Hutter, 2019), over one flat buffer, in FP32
// and in the order of torch.optim.AdamW:
//   g           = decision[0] * grads
//   params     *= 1 - lr * weight_decay
//   exp_avg     = beta1 * exp_avg + (1 - beta1) * g
//   exp_avg_sq  = beta2 * exp_avg_sq + (1 - beta2) * g^2
//   params     -= lr / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + eps)
// Nothing is changed when decision[1] is 0. lr and step come from StepParams when the op runs. None
// of params, exp_avg and exp_avg_sq may overlap another operand.
#pragma once

#include "reprise/kernels/step_params.h"
#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct AdamWArgs {
  View params;         // F32 [P]
  ConstView grads;     // F32 [P]
  View exp_avg;        // F32 [P]
  View exp_avg_sq;     // F32 [P]
  ConstView decision;  // F32 [2], from clip
  const StepParams* step_params = nullptr;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;
};

Support check(const AdamWArgs& args);

}  // namespace reprise
