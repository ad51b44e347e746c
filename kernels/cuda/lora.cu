// Launches of the adapter's gradients.
#include "kernels/cuda/lora.cuh"

#include "kernels/cuda/product_launch.h"
#include "kernels/cuda/tables.h"

namespace reprise::cuda {
namespace {

void lora_backward(const LoraBackwardArgs& args, const Execution& execution) {
  const std::int64_t m = args.grad_y.dims[0], n = args.grad_y.dims[1];
  const std::int64_t r = args.a.dims[0], k = args.a.dims[1];
  const LoraGradUJob grad_u = {.rows = r,
                               .columns = m,
                               .steps = n,
                               .left = transposed(args.b),
                               .right = transposed(args.grad_y, args.compute),
                               .scale = args.scale,
                               .grad_u = args.grad_u.as<float>()};
  const LoraGradAJob grad_a = {.rows = r,
                               .columns = k,
                               .steps = m,
                               .left = transposed(args.grad_u),
                               .right = {operand(args.x, args.compute), args.dropout},
                               .grad_a = {args.grad_a, args.mode}};
  const LoraGradBJob grad_b = {.rows = r,
                               .columns = n,
                               .steps = m,
                               .left = transposed(args.u),
                               .right = operand(args.grad_y, args.compute),
                               .scale = args.scale,
                               .grad_b = {args.grad_b, args.mode}};
  launch_product("lora_grad_u_plain", grad_u, execution);
  launch_product("lora_grad_a_plain", grad_a, execution);
  launch_product("lora_grad_b_plain", grad_b, execution);
}

}  // namespace

void add_lora(OpTable& table) {
  table.lora_backward.push_back({kPlain, check, nullptr, lora_backward});
}

}  // namespace reprise::cuda
