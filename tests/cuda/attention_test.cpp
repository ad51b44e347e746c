// Causal attention on the device, forward and backward, against the reference.
#include <cmath>

#include "tests/cuda/on_device.h"
#include "tests/kernels/run_op.h"

namespace reprise::test {
namespace {

struct AttentionCase {
  AttentionShape shape;
  DType dtype = DType::kF32;       // of q, k, v, out and their gradients
  DType grad_dtype = DType::kF32;  // of grad_out
  double spread = 1;               // standard deviation of q
};

Dims wide(const AttentionShape& s) { return {s.batch * s.seq, s.heads * s.head_dim}; }
Dims narrow(const AttentionShape& s) { return {s.batch * s.seq, s.kv_heads * s.head_dim}; }

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
  ComputeType compute() const {
    return c.dtype == DType::kBF16 ? ComputeType::kBF16 : ComputeType::kF32;
  }

  Results forward(const OpTable& table, ThreadPool& pool) const {
    const Guarded out(c.dtype, wide(c.shape)), lse(DType::kF32, lse_dims());
    run_op(table.attention_forward,
           AttentionForwardArgs{.compute = compute(),
                                .shape = c.shape,
                                .q = q.view(),
                                .k = k.view(),
                                .v = v.view(),
                                .out = out.view(),
                                .lse = lse.view(),
                                .scratch = {}},
           pool);
    return {out.values(), lse.values()};
  }

  Results backward(const OpTable& table, const Results& results, ThreadPool& pool) const {
    const Guarded out(results[0], c.dtype, wide(c.shape));
    const Guarded lse(results[1], DType::kF32, lse_dims());
    const Guarded grad_q(c.dtype, wide(c.shape));
    const Guarded grad_k(c.dtype, narrow(c.shape)), grad_v(c.dtype, narrow(c.shape));
    run_op(table.attention_backward,
           AttentionBackwardArgs{.compute = compute(),
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
    return {grad_q.values(), grad_k.values(), grad_v.values()};
  }
};

// FP32: dots and sums of up to 256 terms and an exp of scores of a few units, 2^-18 in the norm. A
// bf16 result is rounded once on either side, equally but where the two straddle a tie.
void check_case(const AttentionCase& c, Random& random) {
  const Attention attention(c, random);
  const double bound = c.dtype == DType::kBF16 ? 0x1p-9 : 0x1p-18;
  BOOST_TEST_CONTEXT("seq " << c.shape.seq << " heads " << c.shape.heads << "/" << c.shape.kv_heads
                            << " dim " << c.shape.head_dim << " " << name_of(c.dtype)) {
    check_close([&](const OpTable& t, ThreadPool& pool) { return attention.forward(t, pool); },
                bound);
    if (c.shape.seq == 1) return;  // gradients of q and k cancel to 0
    ThreadPool pool(1);
    const Results given = attention.forward(reference_ops(), pool);
    check_close([&](const OpTable& t, ThreadPool& p) { return attention.backward(t, given, p); },
                bound);
  }
}

BOOST_AUTO_TEST_SUITE(cuda_attention)

// Around the 32 partners that a warp looks at together.
BOOST_AUTO_TEST_CASE(lengths) {
  Random random(test_seed(321));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t seq : {1, 2, 31, 32, 33, 63, 64, 65}) {
      check_case({.shape = {.batch = 2, .seq = seq, .heads = 4, .kv_heads = 2, .head_dim = 16},
                  .dtype = dtype,
                  .grad_dtype = dtype},
                 random);
    }
  }
}

BOOST_AUTO_TEST_CASE(widths_of_heads) {
  Random random(test_seed(322));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t dim : {1, 15, 33, 64, 80, 255, 256}) {
      check_case({.shape = {.batch = 1, .seq = 17, .heads = 2, .kv_heads = 1, .head_dim = dim},
                  .dtype = dtype,
                  .grad_dtype = DType::kF32},
                 random);
    }
  }
}

BOOST_AUTO_TEST_CASE(groups) {
  Random random(test_seed(323));
  for (const std::int64_t kv_heads : {1, 3, 9}) {
    check_case({.shape = {.batch = 2, .seq = 19, .heads = 9, .kv_heads = kv_heads, .head_dim = 18}},
               random);
  }
}

// A single position looks at itself alone: out is v, and nothing flows back to q and k.
BOOST_AUTO_TEST_CASE(a_single_position) {
  Random random(test_seed(324));
  const Attention attention(
      {.shape = {.batch = 3, .seq = 1, .heads = 2, .kv_heads = 1, .head_dim = 64}}, random);
  ThreadPool pool(1);
  const Results given = attention.forward(reference_ops(), pool);
  const Results grads = in_every_order(
      [&](const OpTable& t, ThreadPool& p) { return attention.backward(t, given, p); });
  // lse is within 2^-24 of itself and so is 1 the probability; the two dots cancel exactly.
  for (const float value : grads[0]) BOOST_TEST(std::abs(value) <= 0x1p-18f);
  for (const float value : grads[1]) BOOST_TEST(std::abs(value) <= 0x1p-18f);
  BOOST_TEST(relative_error(grads[2], attention.backward(reference_ops(), given, pool)[2]) <=
             0x1p-20);
}

// Scores of hundreds: exp of them overflows unless the largest so far is taken off first.
BOOST_AUTO_TEST_CASE(large_scores_stay_finite) {
  Random random(test_seed(325));
  const Attention attention(
      {.shape = {.batch = 1, .seq = 65, .heads = 2, .kv_heads = 1, .head_dim = 16}, .spread = 100},
      random);
  // An error of 2^-24 of a score of 300, times some roundings, is the relative one of a weight.
  check_close([&](const OpTable& t, ThreadPool& pool) { return attention.forward(t, pool); },
              0x1p-12);
}

BOOST_AUTO_TEST_CASE(wide_heads_are_refused) {
  AttentionForwardArgs args;
  args.shape = {.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 257};
  const Support support = on_device().attention_forward[0].supports(args);
  BOOST_TEST(support.reason() == "head_dim must be at most 256");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
