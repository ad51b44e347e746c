// Causal attention of every instruction set, forward and backward, against the reference.
#include <algorithm>
#include <cmath>
#include <string>

#include "tests/kernels/attention_run.h"

namespace reprise::test {
namespace {

std::string to_string(const AttentionCase& c) {
  const AttentionShape& s = c.shape;
  return std::string(name_of(c.compute)) + " " + name_of(c.dtype) + " batch " +
         std::to_string(s.batch) + " seq " + std::to_string(s.seq) + " heads " +
         std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " dim " +
         std::to_string(s.head_dim);
}

// What differs from the reference, in the norm. FP32: sums of up to 129 terms and an exp within
// 2e-7 of scores of a few units. A result in bf16: one rounding, 0.42 * 2^-8 in the root mean
// square, on each side. bf16 compute rounds what the reference does not: q, k, v and grad_out if
// they are FP32, the probabilities and the gradients of the scores; five or six roundings of that
// size in a row.
double tolerance(const AttentionCase& c) {
  if (c.compute == ComputeType::kBF16) return 3 * 0x1p-8;
  return c.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-17;
}

// The gradients of a single position's scores are 0: what remains is measured against 1 an element.
double gradient_error(const AttentionCase& c, const std::vector<float>& values,
                      const std::vector<float>& expected) {
  if (c.shape.seq > 1) return relative_error(values, expected);
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(values[i]) - expected[i];
    squares += difference * difference;
  }
  return std::sqrt(squares / static_cast<double>(values.size()));
}

void check_case(const AttentionCase& c, Random& random) {
  const Attention attention(c, random);
  ThreadPool one(1), two(2), three(3);
  const AttentionOutputs expected = attention.forward(reference_ops(), one);
  const AttentionGradients expected_grads = attention.backward(reference_ops(), expected, one);
  for (const Isa isa : isas_under_test()) {
    BOOST_TEST_CONTEXT(name_of(isa) << " " << to_string(c)) {
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      const AttentionOutputs outputs = attention.forward(table, two);
      BOOST_TEST(relative_error(outputs.out, expected.out) <= tolerance(c));
      BOOST_TEST(relative_error(outputs.lse, expected.lse) <= tolerance(c));
      BOOST_TEST((attention.forward(table, two) == outputs));  // the same bits again
      BOOST_TEST((attention.forward(table, one) == outputs));  // whoever computes them
      BOOST_TEST((attention.forward(table, three) == outputs));

      const AttentionGradients grads = attention.backward(table, expected, two);
      BOOST_TEST(gradient_error(c, grads.q, expected_grads.q) <= tolerance(c));
      BOOST_TEST(gradient_error(c, grads.k, expected_grads.k) <= tolerance(c));
      BOOST_TEST(relative_error(grads.v, expected_grads.v) <= tolerance(c));
      BOOST_TEST((attention.backward(table, expected, two) == grads));
      BOOST_TEST((attention.backward(table, expected, one) == grads));
      BOOST_TEST((attention.backward(table, expected, three) == grads));
    }
  }
}

BOOST_AUTO_TEST_SUITE(attention)

BOOST_AUTO_TEST_CASE(lengths_around_a_tile) {
  Random random(test_seed(121));
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    for (const std::int64_t seq : {1, 2, 17, 63, 64, 65, 129}) {
      check_case({.shape = {.batch = 1, .seq = seq, .heads = 4, .kv_heads = 2, .head_dim = 32},
                  .compute = compute,
                  .dtype = activation_dtype(compute),
                  .grad_dtype = activation_dtype(compute)},
                 random);
    }
  }
}

BOOST_AUTO_TEST_CASE(widths_of_heads) {
  Random random(test_seed(122));
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    for (const std::int64_t dim : {1, 2, 15, 17, 64, 80, 128}) {
      check_case({.shape = {.batch = 2, .seq = 67, .heads = 2, .kv_heads = 1, .head_dim = dim},
                  .compute = compute,
                  .dtype = activation_dtype(compute),
                  .grad_dtype = activation_dtype(compute)},
                 random);
    }
  }
}

BOOST_AUTO_TEST_CASE(groups_and_types) {
  Random random(test_seed(123));
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const DType grad_dtype : {DType::kF32, DType::kBF16}) {
        for (const std::int64_t kv_heads : {1, 3, 9}) {
          check_case(
              {.shape = {.batch = 2, .seq = 19, .heads = 9, .kv_heads = kv_heads, .head_dim = 18},
               .compute = compute,
               .dtype = dtype,
               .grad_dtype = grad_dtype},
              random);
        }
      }
    }
  }
}

// Scores of hundreds: exp of them overflows unless the largest is taken off first, and the largest
// so far grows from tile to tile.
BOOST_AUTO_TEST_CASE(large_scores_stay_finite) {
  Random random(test_seed(124));
  const Attention attention(
      {.shape = {.batch = 1, .seq = 129, .heads = 2, .kv_heads = 1, .head_dim = 16}, .spread = 100},
      random);
  ThreadPool pool(2);
  const AttentionOutputs expected = attention.forward(reference_ops(), pool);
  for (const Isa isa : isas_under_test()) {
    const AttentionOutputs outputs = attention.forward(cpu_ops(isa, LinearMode::kFused), pool);
    // An error of 2^-24 of a score of 300, times some roundings, is the relative one of a weight.
    BOOST_TEST(relative_error(outputs.out, expected.out) <= 0x1p-12, name_of(isa));
    BOOST_TEST(relative_error(outputs.lse, expected.lse) <= 0x1p-17, name_of(isa));
  }
}

BOOST_AUTO_TEST_CASE(later_positions_and_other_sequences_are_not_seen) {
  Random random(test_seed(125));
  constexpr std::int64_t kSeq = 70, kChanged = 66;
  ThreadPool pool(2);
  const AttentionCase c{
      .shape = {.batch = 2, .seq = kSeq, .heads = 2, .kv_heads = 1, .head_dim = 16}};
  const Attention attention(c, random);
  for (const Isa isa : isas_under_test()) {
    const OpTable table = cpu_ops(isa, LinearMode::kFused);
    const AttentionOutputs before = attention.forward(table, pool);
    Attention changed(c, random);
    std::vector<float> q = attention.q.values(), k = attention.k.values(), v = attention.v.values();
    for (std::size_t i = kChanged * 16; i < k.size(); ++i) k[i] = v[i] = 1000;
    changed.q = Guarded(q, c.dtype, wide(c.shape));
    changed.k = Guarded(k, c.dtype, narrow(c.shape));
    changed.v = Guarded(v, c.dtype, narrow(c.shape));
    const AttentionOutputs after = changed.forward(table, pool);
    constexpr std::ptrdiff_t kSame = kChanged * 2 * 16;
    BOOST_TEST(std::equal(before.out.begin(), before.out.begin() + kSame, after.out.begin()),
               name_of(isa));
    BOOST_TEST(before.out[kSame] != after.out[kSame]);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
