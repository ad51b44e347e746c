// Launches of the ops that work element by element.
#include "kernels/cuda/pointwise.cuh"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/tables.h"

namespace reprise::cuda {
namespace {

void embedding_forward(const EmbeddingForwardArgs& args, const Execution& execution) {
  const EmbeddingJob job = {args.ids.as<std::int32_t>(), args.table, args.y.dims[1],
                            args.y.as<float>()};
  launch_elementwise("embedding_forward_plain", args.y.count(), job, execution);
}

void rope(const RopeArgs& args, const Execution& execution) {
  const RopeJob job = {.x = args.x,
                       .table = args.table.as<float>(),
                       .seq = args.table.dims[0],
                       .half = args.table.dims[1],
                       .heads = args.heads,
                       .turn = args.direction == RopeDirection::kForward ? 1.0f : -1.0f,
                       .y = args.y};
  launch_elementwise("rope_plain", args.x.count() / 2, job, execution);
}

void swiglu_forward(const SwigluForwardArgs& args, const Execution& execution) {
  const SwigluForwardJob job = {args.gate, args.up, args.y};
  launch_elementwise("swiglu_forward_plain", args.y.count(), job, execution);
}

void swiglu_backward(const SwigluBackwardArgs& args, const Execution& execution) {
  const SwigluBackwardJob job = {args.grad_y, args.gate, args.up, args.grad_gate, args.grad_up};
  launch_elementwise("swiglu_backward_plain", args.grad_y.count(), job, execution);
}

void residual(const ResidualArgs& args, const Execution& execution) {
  const ResidualJob job = {args.a.as<float>(), args.b, args.y.as<float>()};
  launch_elementwise("residual_plain", args.y.count(), job, execution);
}

void fill(const FillArgs& args, const Execution& execution) {
  launch_elementwise("fill_plain", args.x.count(), FillJob{args.x.as<float>(), args.value},
                     execution);
}

}  // namespace

void add_pointwise(OpTable& table) {
  table.embedding_forward.push_back({kPlain, check, nullptr, embedding_forward});
  table.rope.push_back({kPlain, check, nullptr, rope});
  table.swiglu_forward.push_back({kPlain, check, nullptr, swiglu_forward});
  table.swiglu_backward.push_back({kPlain, check, nullptr, swiglu_backward});
  table.residual.push_back({kPlain, check, nullptr, residual});
  table.fill.push_back({kPlain, check, nullptr, fill});
}

}  // namespace reprise::cuda
