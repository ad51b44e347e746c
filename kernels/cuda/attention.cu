// Launches of attention.
#include "kernels/cuda/attention.cuh"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/tables.h"

namespace reprise::cuda {
namespace {

template <class Args>
Support supports(const Args& args) {
  if (args.shape.head_dim > kMaxHeadDim) return Support::no("head_dim must be at most 256");
  return check(args);
}

std::int64_t query_rows(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.seq;
}

LaunchShape warps_shape(std::int64_t rows, const Execution& execution) {
  return row_of_blocks(ceil_div(rows, kAttentionWarps), kAttentionThreads, execution);
}

void attention_forward(const AttentionForwardArgs& args, const Execution& execution) {
  const AttentionForward params = {.shape = args.shape,
                                   .q = args.q,
                                   .k = args.k,
                                   .v = args.v,
                                   .out = args.out,
                                   .lse = args.lse.as<float>()};
  launch("attention_forward_plain", attention_forward_plain,
         warps_shape(query_rows(args.shape), execution), params);
}

std::int64_t backward_scratch(const AttentionBackwardArgs& args, int) {
  return query_rows(args.shape) * static_cast<std::int64_t>(sizeof(float));
}

void attention_backward(const AttentionBackwardArgs& args, const Execution& execution) {
  const std::int64_t rows = query_rows(args.shape);
  const AttentionBackward params = {.shape = args.shape,
                                    .grad_out = args.grad_out,
                                    .q = args.q,
                                    .k = args.k,
                                    .v = args.v,
                                    .out = args.out,
                                    .lse = args.lse.as<float>(),
                                    .delta = static_cast<float*>(args.scratch.data),
                                    .grad_q = args.grad_q,
                                    .grad_k = args.grad_k,
                                    .grad_v = args.grad_v};
  launch("attention_delta_plain", attention_delta_plain,
         row_of_blocks(ceil_div(rows, kAttentionThreads), kAttentionThreads, execution), params);
  launch("attention_grad_q_plain", attention_grad_q_plain, warps_shape(rows, execution), params);
  launch("attention_grad_kv_plain", attention_grad_kv_plain,
         warps_shape(args.shape.batch * args.shape.kv_heads * args.shape.seq, execution), params);
}

}  // namespace

void add_attention(OpTable& table) {
  table.attention_forward.push_back(
      {kPlain, supports<AttentionForwardArgs>, nullptr, attention_forward});
  table.attention_backward.push_back(
      {kPlain, supports<AttentionBackwardArgs>, backward_scratch, attention_backward});
}

}  // namespace reprise::cuda
