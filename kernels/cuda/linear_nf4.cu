// Launches of the frozen linear layer.
#include "kernels/cuda/linear_nf4.cuh"

#include <bit>

#include "kernels/cuda/lora.cuh"
#include "kernels/cuda/product_launch.h"
#include "kernels/cuda/tables.h"

namespace reprise::cuda {
namespace {

Nf4Elements elements_of(const Nf4View& weight, ComputeType compute) {
  return {.packed = weight.packed,
          .absmax = weight.absmax,
          .block_shift = std::countr_zero(static_cast<std::uint64_t>(weight.block_size)),
          .order = weight.order,
          .rounding = compute};
}

void make_u(const LinearNf4ForwardArgs& args, const Execution& execution) {
  const LoraForward& lora = args.lora;
  const LoraUJob job = {.rows = lora.a.dims[0],
                        .columns = args.x.dims[0],
                        .steps = args.weight.k,
                        .left = operand(lora.a),
                        .right = {transposed(args.x, args.compute), lora.dropout},
                        .u = lora.u.as<float>()};
  launch_product("lora_u_plain", job, execution);
}

void linear_nf4_forward(const LinearNf4ForwardArgs& args, const Execution& execution) {
  LinearForwardJob job = {
      .rows = args.x.dims[0],
      .columns = args.weight.n,
      .steps = args.weight.k,
      .left = operand(args.x, args.compute),
      .right = {elements_of(args.weight, args.compute), args.weight.k},
      .low_rank = {},
      .bias = args.bias.present() ? args.bias.as<float>() : nullptr,
      .y = {args.y, args.mode},
  };
  if (args.lora.a.present()) {
    make_u(args, execution);
    job.low_rank = {operand(args.lora.u), transposed(args.lora.b), args.lora.a.dims[0]};
    job.scale = args.lora.scale;
  }
  launch_product("linear_nf4_forward_plain", job, execution);
}

void linear_nf4_backward(const LinearNf4BackwardArgs& args, const Execution& execution) {
  LinearBackwardJob job = {
      .rows = args.grad_y.dims[0],
      .columns = args.weight.k,
      .steps = args.weight.n,
      .left = operand(args.grad_y, args.compute),
      .right = {elements_of(args.weight, args.compute), args.weight.k},
      .low_rank = {},
      .dropout = {},
      .grad_x = {args.grad_x, args.mode},
  };
  if (args.lora.a.present()) {
    job.low_rank = {operand(args.lora.grad_u), operand(args.lora.a), args.lora.a.dims[0]};
    job.dropout = args.lora.dropout;
  }
  launch_product("linear_nf4_backward_plain", job, execution);
}

}  // namespace

void add_linear_nf4(OpTable& table) {
  table.linear_nf4_forward.push_back({kPlain, check, nullptr, linear_nf4_forward});
  table.linear_nf4_backward.push_back({kPlain, check, nullptr, linear_nf4_backward});
}

}  // namespace reprise::cuda
