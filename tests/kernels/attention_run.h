// Random operands of attention, and both of its ops run on them: shared by the tests of the CPU and
// of CUDA.
#pragma once

#include <cmath>
#include <vector>

#include "tests/kernels/run_op.h"

namespace reprise::test {

struct AttentionCase {
  AttentionShape shape;
  ComputeType compute = ComputeType::kF32;
  DType dtype = DType::kF32;       // of q, k, v, out and their gradients
  DType grad_dtype = DType::kF32;  // of grad_out
  double spread = 1;               // standard deviation of q
};

inline Dims wide(const AttentionShape& s) { return {s.batch * s.seq, s.heads * s.head_dim}; }
inline Dims narrow(const AttentionShape& s) { return {s.batch * s.seq, s.kv_heads * s.head_dim}; }

struct AttentionOutputs {
  std::vector<float> out, lse;
  bool operator==(const AttentionOutputs&) const = default;
};
struct AttentionGradients {
  std::vector<float> q, k, v;
  bool operator==(const AttentionGradients&) const = default;
};

struct Attention {
  AttentionCase c;
  Guarded q, k, v, grad_out;

  Attention(const AttentionCase& attention_case, Random& random)
      : c(attention_case),
        q(normal_values(random, wide(c.shape).count(), c.spread), c.dtype, wide(c.shape)),
        k(normal_values(random, narrow(c.shape).count()), c.dtype, narrow(c.shape)),
        v(normal_values(random, narrow(c.shape).count()), c.dtype, narrow(c.shape)),
        grad_out(normal_values(random, wide(c.shape).count()), c.grad_dtype, wide(c.shape)) {
    c.shape.scale = 1 / std::sqrt(static_cast<float>(c.shape.head_dim));
  }

  Dims lse_dims() const { return {c.shape.batch, c.shape.heads, c.shape.seq}; }

  AttentionOutputs forward(const OpTable& table, ThreadPool& pool) const {
    const Guarded out(c.dtype, wide(c.shape)), lse(DType::kF32, lse_dims());
    run_op(table.attention_forward,
           AttentionForwardArgs{.compute = c.compute,
                                .shape = c.shape,
                                .q = q.view(),
                                .k = k.view(),
                                .v = v.view(),
                                .out = out.view(),
                                .lse = lse.view(),
                                .scratch = {}},
           pool);
    BOOST_TEST(out.intact());
    BOOST_TEST(lse.intact());
    return {out.values(), lse.values()};
  }

  AttentionGradients backward(const OpTable& table, const AttentionOutputs& outputs,
                              ThreadPool& pool) const {
    const Guarded out(outputs.out, c.dtype, wide(c.shape));
    const Guarded lse(outputs.lse, DType::kF32, lse_dims());
    const Guarded grad_q(c.dtype, wide(c.shape));
    const Guarded grad_k(c.dtype, narrow(c.shape)), grad_v(c.dtype, narrow(c.shape));
    run_op(table.attention_backward,
           AttentionBackwardArgs{.compute = c.compute,
                                 .shape = c.shape,
                                 .grad_out = grad_out.view(),
                                 .q = q.view(),
                                 .k = k.view(),
                                 .v = v.view(),
                                 .out = out.view(),
                                 .lse = lse.view(),
                                 .grad_q = grad_q.view(),
                                 .grad_k = grad_k.view(),
                                 .grad_v = grad_v.view(),
                                 .scratch = {}},
           pool);
    for (const Guarded* const grad : {&grad_q, &grad_k, &grad_v}) BOOST_TEST(grad->intact());
    return {grad_q.values(), grad_k.values(), grad_v.values()};
  }
};

}  // namespace reprise::test
