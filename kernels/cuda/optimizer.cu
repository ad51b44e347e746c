// Launches of the norm of the gradient, clip and AdamW.
#include "kernels/cuda/optimizer.cuh"

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/tables.h"

namespace reprise::cuda {
namespace {

// Blocks that share `count` elements, 16 for each thread until there are many.
std::int64_t blocks_for(std::int64_t count) {
  return std::min<std::int64_t>(ceil_div(count, kReduceThreads * 16), 1024);
}

std::int64_t grad_norm_scratch(const GradNormArgs& args, int) {
  return blocks_for(args.grads.count()) * static_cast<std::int64_t>(sizeof(double));
}

void grad_norm(const GradNormArgs& args, const Execution& execution) {
  const std::int64_t blocks = blocks_for(args.grads.count());
  auto* const partials = static_cast<double*>(args.scratch.data);
  launch("grad_norm_partials_plain", grad_norm_partials,
         row_of_blocks(blocks, kReduceThreads, execution), args.grads.as<float>(),
         args.grads.count(), partials);
  launch("grad_norm_plain", grad_norm_plain, row_of_blocks(1, kReduceThreads, execution), partials,
         blocks, args.norm.as<float>());
}

void clip(const ClipArgs& args, const Execution& execution) {
  launch("clip_plain", clip_plain, row_of_blocks(1, 1, execution), args.norm.as<float>(),
         args.loss.as<float>(), args.loss.count(), args.max_norm, args.decision.as<float>());
}

void adamw(const AdamWArgs& args, const Execution& execution) {
  const AdamW params = {.count = args.params.count(),
                        .params = args.params.as<float>(),
                        .grads = args.grads.as<float>(),
                        .exp_avg = args.exp_avg.as<float>(),
                        .exp_avg_sq = args.exp_avg_sq.as<float>(),
                        .decision = args.decision.as<float>(),
                        .step_params = args.step_params,
                        .beta1 = args.beta1,
                        .beta2 = args.beta2,
                        .eps = args.eps,
                        .weight_decay = args.weight_decay};
  launch("adamw_plain", adamw_plain,
         row_of_blocks(blocks_for(params.count), kReduceThreads, execution), params);
}

}  // namespace

void add_optimizer(OpTable& table) {
  table.grad_norm.push_back({kPlain, check, grad_norm_scratch, grad_norm});
  table.clip.push_back({kPlain, check, nullptr, clip});
  table.adamw.push_back({kPlain, check, nullptr, adamw});
}

}  // namespace reprise::cuda
