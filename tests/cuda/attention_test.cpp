// Causal attention on the device, forward and backward, against the reference.
#include <cmath>

#include "tests/cuda/on_device.h"
#include "tests/kernels/attention_run.h"

namespace reprise::test {
namespace {

Results forward_of(const Attention& attention, const OpTable& table, ThreadPool& pool) {
  const AttentionOutputs outputs = attention.forward(table, pool);
  return {outputs.out, outputs.lse};
}

// `given`: what the forward pass left.
Results backward_of(const Attention& attention, const AttentionOutputs& given, const OpTable& table,
                    ThreadPool& pool) {
  const AttentionGradients grads = attention.backward(table, given, pool);
  return {grads.q, grads.k, grads.v};
}

// FP32: dots and sums of up to 256 terms and an exp of scores of a few units, 2^-18 in the norm. A
// bf16 result is rounded once on either side, equally but where the two straddle a tie.
void check_case(AttentionCase c, Random& random) {
  c.compute = c.dtype == DType::kBF16 ? ComputeType::kBF16 : ComputeType::kF32;
  const Attention attention(c, random);
  const double bound = c.dtype == DType::kBF16 ? 0x1p-9 : 0x1p-18;
  BOOST_TEST_CONTEXT("seq " << c.shape.seq << " heads " << c.shape.heads << "/" << c.shape.kv_heads
                            << " dim " << c.shape.head_dim << " " << name_of(c.dtype)) {
    check_close([&](const OpTable& t, ThreadPool& p) { return forward_of(attention, t, p); },
                bound);
    if (c.shape.seq == 1) return;  // gradients of q and k cancel to 0
    ThreadPool pool(1);
    const AttentionOutputs given = attention.forward(reference_ops(), pool);
    check_close(
        [&](const OpTable& t, ThreadPool& p) { return backward_of(attention, given, t, p); },
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
  const AttentionOutputs given = attention.forward(reference_ops(), pool);
  const Results grads = in_every_order(
      [&](const OpTable& t, ThreadPool& p) { return backward_of(attention, given, t, p); });
  // lse is within 2^-24 of itself and so is 1 the probability; the two dots cancel exactly.
  for (const float value : grads[0]) BOOST_TEST(std::abs(value) <= 0x1p-18f);
  for (const float value : grads[1]) BOOST_TEST(std::abs(value) <= 0x1p-18f);
  BOOST_TEST(relative_error(grads[2], attention.backward(reference_ops(), given, pool).v) <=
             0x1p-20);
}

// Scores of hundreds: exp of them overflows unless the largest so far is taken off first.
BOOST_AUTO_TEST_CASE(large_scores_stay_finite) {
  Random random(test_seed(325));
  const Attention attention(
      {.shape = {.batch = 1, .seq = 65, .heads = 2, .kv_heads = 1, .head_dim = 16}, .spread = 100},
      random);
  // An error of 2^-24 of a score of 300, times some roundings, is the relative one of a weight.
  check_close([&](const OpTable& t, ThreadPool& p) { return forward_of(attention, t, p); },
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
