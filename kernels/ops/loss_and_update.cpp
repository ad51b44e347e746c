// Contracts of the vocabulary head, its loss, and the update.
#include "kernels/ops/contract.h"
#include "reprise/kernels/ops/adamw.h"
#include "reprise/kernels/ops/cross_entropy.h"
#include "reprise/kernels/ops/grad_norm.h"

namespace reprise {

Support check(const CrossEntropyArgs& args) {
  Contract contract;
  contract.holds(args.x.dims.rank() == 2 && args.x.dims[0] > 0, "x must be a matrix [M, C]")
      .holds(args.weight.dims.rank() == 2 && args.weight.dims[0] > 0,
             "weight must be a matrix [V, C]")
      .holds(args.loss.dims.rank() == 1 && args.loss.dims[0] > 0,
             "loss must have one element for each micro-step");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t m = args.x.dims[0], c = args.x.dims[1];
  contract.is_float("x", args.x, {m, c})
      .is_float("weight", args.weight, {args.weight.dims[0], c})
      .is("labels", args.labels, DType::kI32, {m})
      .is("loss", args.loss, DType::kF32, args.loss.dims);
  if (args.nll.present()) contract.is("nll", args.nll, DType::kF32, {m});
  if (args.grad_x.present()) {
    contract.is("grad_x", args.grad_x, DType::kF32, {m, c});
  }
  return contract
      .separate(
          {{"loss", args.loss}, {"nll", args.nll}, {"grad_x", args.grad_x}, bytes_of(args.scratch)},
          {{"x", args.x},
           {"weight", args.weight},
           {"labels", args.labels},
           bytes_of("params", args.params)})
      .result();
}

Support check(const LmHeadArgs& args) {
  Contract contract;
  contract.holds(args.x.dims.rank() == 2 && args.x.dims[0] > 0, "x must be a matrix [M, C]")
      .holds(args.weight.dims.rank() == 2 && args.weight.dims[0] > 0,
             "weight must be a matrix [V, C]");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t m = args.x.dims[0], c = args.x.dims[1], v = args.weight.dims[0];
  return contract.is_float("x", args.x, {m, c})
      .is_float("weight", args.weight, {v, c})
      .is("logits", args.logits, DType::kF32, {m, v})
      .separate({{"logits", args.logits}, bytes_of(args.scratch)},
                {{"x", args.x}, {"weight", args.weight}})
      .result();
}

Support check(const GradNormArgs& args) {
  return Contract()
      .holds(args.grads.dims.rank() == 1 && args.grads.dims[0] > 0, "grads must be a vector [P]")
      .is("grads", args.grads, DType::kF32, args.grads.dims)
      .is("norm", args.norm, DType::kF32, {1})
      .separate({{"norm", args.norm}, bytes_of(args.scratch)}, {{"grads", args.grads}})
      .result();
}

Support check(const ClipArgs& args) {
  return Contract()
      .holds(args.loss.dims.rank() == 1 && args.loss.dims[0] > 0, "loss must be a vector")
      .is("norm", args.norm, DType::kF32, {1})
      .is("loss", args.loss, DType::kF32, args.loss.dims)
      .is("decision", args.decision, DType::kF32, {2})
      .holds(args.max_norm >= 0, "max_norm must not be negative")
      .separate({{"decision", args.decision}}, {{"norm", args.norm}, {"loss", args.loss}})
      .result();
}

Support check(const AdamWArgs& args) {
  Contract contract;
  contract.holds(args.params.dims.rank() == 1 && args.params.dims[0] > 0,
                 "params must be a vector [P]");
  if (!contract.result().ok()) return contract.result();
  const Dims dims = args.params.dims;
  return contract.is("params", args.params, DType::kF32, dims)
      .is("grads", args.grads, DType::kF32, dims)
      .is("exp_avg", args.exp_avg, DType::kF32, dims)
      .is("exp_avg_sq", args.exp_avg_sq, DType::kF32, dims)
      .is("decision", args.decision, DType::kF32, {2})
      .holds(args.beta1 >= 0 && args.beta1 < 1, "beta1 must be in [0, 1)")
      .holds(args.beta2 >= 0 && args.beta2 < 1, "beta2 must be in [0, 1)")
      .holds(args.eps > 0, "eps must be positive")
      .separate(
          {{"params", args.params}, {"exp_avg", args.exp_avg}, {"exp_avg_sq", args.exp_avg_sq}},
          {{"grads", args.grads},
           {"decision", args.decision},
           bytes_of("step_params", args.step_params)})
      .result();
}

}  // namespace reprise
