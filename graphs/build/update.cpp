// Gradient norm, clip, AdamW: one pass each over the flat buffers.
#include "graphs/build/builder.h"

namespace reprise {

void StepBuilder::update() {
  require(layout_.count > 0, "nothing to train: the adapter has no target modules");
  add(node::GradNorm{values_.lora_grads, values_.grad_norm}, Pass::kUpdate);
  add(node::Clip{values_.grad_norm, values_.loss, values_.decision, options_.clip}, Pass::kUpdate);
  add(node::AdamW{.params = values_.lora_params,
                  .grads = values_.lora_grads,
                  .exp_avg = values_.exp_avg,
                  .exp_avg_sq = values_.exp_avg_sq,
                  .decision = values_.decision,
                  .step_params = values_.step_params,
                  .beta1 = options_.adamw.beta1,
                  .beta2 = options_.adamw.beta2,
                  .eps = options_.adamw.eps,
                  .weight_decay = options_.adamw.weight_decay},
      Pass::kUpdate);
  // The micro-steps of the next step add to zero.
  if (options_.kind == StepKind::kUpdate) add(node::Fill{values_.lora_grads, 0}, Pass::kUpdate);
}

}  // namespace reprise
