// Contracts of attention.
#include "reprise/kernels/ops/attention.h"
#include "kernels/ops/contract.h"

namespace reprise {
namespace {

void check_shape(Contract& contract, const AttentionShape& shape) {
  contract.holds(shape.batch > 0 && shape.seq > 0, "batch and seq must be at least 1")
      .holds(shape.heads > 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
             "heads must be a multiple of kv_heads")
      .holds(shape.head_dim > 0, "head_dim must be at least 1");
}

}  // namespace

Support check(const AttentionForwardArgs& args) {
  const AttentionShape& s = args.shape;
  Contract contract;
  check_shape(contract, s);
  if (!contract.result().ok()) return contract.result();
  const Dims wide = {s.batch * s.seq, s.heads * s.head_dim};
  const Dims narrow = {s.batch * s.seq, s.kv_heads * s.head_dim};
  return contract.is_float("q", args.q, wide)
      .is("k", args.k, args.q.dtype, narrow)
      .is("v", args.v, args.q.dtype, narrow)
      .is("out", args.out, args.q.dtype, wide)
      .is("lse", args.lse, DType::kF32, {s.batch, s.heads, s.seq})
      .separate({{"out", args.out}, {"lse", args.lse}, bytes_of(args.scratch)},
                {{"q", args.q}, {"k", args.k}, {"v", args.v}})
      .result();
}

Support check(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.shape;
  Contract contract;
  check_shape(contract, s);
  if (!contract.result().ok()) return contract.result();
  const Dims wide = {s.batch * s.seq, s.heads * s.head_dim};
  const Dims narrow = {s.batch * s.seq, s.kv_heads * s.head_dim};
  return contract.is_float("q", args.q, wide)
      .is_float("grad_out", args.grad_out, wide)
      .is("k", args.k, args.q.dtype, narrow)
      .is("v", args.v, args.q.dtype, narrow)
      .is("out", args.out, args.q.dtype, wide)
      .is("lse", args.lse, DType::kF32, {s.batch, s.heads, s.seq})
      .is("grad_q", args.grad_q, args.q.dtype, wide)
      .is("grad_k", args.grad_k, args.q.dtype, narrow)
      .is("grad_v", args.grad_v, args.q.dtype, narrow)
      .separate({{"grad_q", args.grad_q},
                 {"grad_k", args.grad_k},
                 {"grad_v", args.grad_v},
                 bytes_of(args.scratch)},
                {{"grad_out", args.grad_out},
                 {"q", args.q},
                 {"k", args.k},
                 {"v", args.v},
                 {"out", args.out},
                 {"lse", args.lse}})
      .result();
}

}  // namespace reprise
