// The vocabulary head and its loss on the device against the reference.
#include <cmath>

#include "tests/cuda/on_device.h"
#include "tests/kernels/run_op.h"

namespace reprise::test {
namespace {

struct HeadCase {
  std::int64_t m = 0, v = 0, c = 0;
  double labelled = 0.6;  // share of rows that have a label
  ComputeType compute = ComputeType::kF32;
  DType x = DType::kF32;
  DType weight = DType::kF32;
  double spread = 1;
};

struct Head {
  HeadCase c;
  Guarded x, weight;
  std::vector<std::int32_t> labels;
  StepParams params{.micro_step = 1};

  Head(const HeadCase& head, Random& random)
      : c(head),
        x(normal_values(random, c.m * c.c, c.spread), c.x, {c.m, c.c}),
        weight(normal_values(random, c.v * c.c, 1 / std::sqrt(static_cast<double>(c.c))), c.weight,
               {c.v, c.c}) {
    std::int64_t valid = 0;
    for (std::int64_t row = 0; row < c.m; ++row) {
      const bool labelled = random.uniform() < c.labelled;
      const auto label = static_cast<std::int32_t>(random.between(0, c.v - 1));
      labels.push_back(labelled ? label : kIgnoredLabel);
      valid += labelled;
    }
    params.loss_scale = valid == 0 ? 0.0f : 1.0f / static_cast<float>(valid);
  }

  // The losses of all micro-steps, of which one is written, nll, grad_x.
  Results run(const OpTable& table, ThreadPool& pool) const {
    const Guarded loss(std::vector<float>{5, 6, 7}, DType::kF32, {3});
    const Guarded nll(DType::kF32, {c.m}), grad_x(DType::kF32, {c.m, c.c});
    CrossEntropyArgs args;
    args.compute = c.compute;
    args.x = x.view();
    args.weight = weight.view();
    args.labels = {labels.data(), DType::kI32, {c.m}};
    args.params = &params;
    args.loss = loss.view();
    run_op(table.cross_entropy, args, pool);
    const Results alone = {loss.values()};  // neither nll nor a gradient wanted
    args.nll = nll.view();
    args.grad_x = grad_x.view();
    run_op(table.cross_entropy, args, pool);
    BOOST_TEST((Results{loss.values()} == alone));
    return {loss.values(), nll.values(), grad_x.values()};
  }

  Results logits(const OpTable& table, ThreadPool& pool) const {
    const Guarded out(DType::kF32, {c.m, c.v});
    LmHeadArgs args;
    args.compute = c.compute;
    args.x = x.view();
    args.weight = weight.view();
    args.logits = out.view();
    run_op(table.lm_head, args, pool);
    return {out.values()};
  }
};

// Operands are rounded as the reference rounds them, so only FP32 sums differ: of C <= 200 products
// of the order of a logit, and of V <= 1000 weighted rows. A logit's error is that of every
// exponential; together below 2^-18 in the norm.
void check_head(const HeadCase& c, Random& random) {
  const Head head(c, random);
  BOOST_TEST_CONTEXT(c.m << " x " << c.c << ", vocabulary " << c.v << " " << name_of(c.compute)) {
    check_close([&](const OpTable& t, ThreadPool& pool) { return head.run(t, pool); }, 0x1p-18);
    check_close([&](const OpTable& t, ThreadPool& pool) { return head.logits(t, pool); }, 0x1p-18);
  }
}

BOOST_AUTO_TEST_SUITE(cuda_loss)

BOOST_AUTO_TEST_CASE(ragged_shapes_and_types) {
  Random random(test_seed(331));
  const std::int64_t sizes[][3] = {{1, 17, 64},    {15, 65, 200},  {16, 2, 1},    {17, 128, 16},
                                   {63, 1000, 17}, {65, 127, 129}, {129, 15, 63}, {200, 64, 15}};
  int i = 0;
  for (const auto& [m, v, c] : sizes) {
    for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
      ++i;
      check_head({.m = m,
                  .v = v,
                  .c = c,
                  .labelled = m == 1 ? 1 : 0.6,
                  .compute = compute,
                  .x = i % 3 == 0 ? DType::kBF16 : DType::kF32,
                  .weight = i % 4 < 2 ? DType::kBF16 : DType::kF32},
                 random);
    }
  }
}

// With this vocabulary 64 rows are one chunk, so the last two make a second one.
BOOST_AUTO_TEST_CASE(several_chunks_of_rows) {
  Random random(test_seed(332));
  Head head({.m = 66, .v = 131073, .c = 1, .labelled = 0}, random);
  for (const std::size_t row : {0, 63, 65}) head.labels[row] = static_cast<std::int32_t>(row * 7);
  head.params.loss_scale = 1.0f / 3;
  ThreadPool pool(1);
  const Results results = head.run(on_device(), pool), expected = head.run(reference_ops(), pool);
  BOOST_TEST(relative_error(results[0], expected[0]) <= 0x1p-18);
  BOOST_TEST(relative_error(results[1], expected[1]) <= 0x1p-18);
  // An FP32 sum of 2^17 terms: 2^8.5 times 2^-25 of what it has reached, where roundings are
  // independent, and of a result that may be several times smaller.
  BOOST_TEST(relative_error(results[2], expected[2]) <= 0x1p-13);
}

// Every row masked: loss and gradient are exactly 0, whatever was there. And a single row that is
// not, whose neighbours are.
BOOST_AUTO_TEST_CASE(masks) {
  Random random(test_seed(333));
  const Head none({.m = 70, .v = 33, .c = 20, .labelled = 0}, random);
  check_exact([&](const OpTable& t, ThreadPool& pool) { return none.run(t, pool); });
  Head one({.m = 70, .v = 33, .c = 20, .labelled = 0}, random);
  one.labels[66] = 32;
  one.params.loss_scale = 1;
  check_close([&](const OpTable& t, ThreadPool& pool) { return one.run(t, pool); }, 0x1p-18);
}

// A masked row may hold anything: nothing of it reaches a result.
BOOST_AUTO_TEST_CASE(masked_rows_are_not_used) {
  Random random(test_seed(334));
  Head head({.m = 3, .v = 33, .c = 20, .labelled = 1}, random);
  head.labels[1] = kIgnoredLabel;
  std::vector<float> values = head.x.values();
  for (std::size_t i = 20; i < 40; ++i) values[i] = std::nanf("");
  head.x = Guarded(values, DType::kF32, {3, 20});
  check_close([&](const OpTable& t, ThreadPool& pool) { return head.run(t, pool); }, 0x1p-18);
}

BOOST_AUTO_TEST_CASE(huge_logits_do_not_overflow) {
  Random random(test_seed(335));
  // Logits of up to 10,000, each off by some 2^-24 of that: 2^-10 in an exponential.
  const Head head({.m = 17, .v = 200, .c = 64, .labelled = 1, .spread = 3000}, random);
  check_close([&](const OpTable& t, ThreadPool& pool) { return head.run(t, pool); }, 0x1p-9);
}

// Two words, logits 30 and 0: softmax - onehot is e^-30, which FP32 loses beside 1.
BOOST_AUTO_TEST_CASE(a_certain_prediction_has_a_small_gradient_not_none) {
  Random random(1);
  Head head({.m = 1, .v = 2, .c = 64, .labelled = 1}, random);
  std::vector<float> x(64), weight(128);
  x[0] = 1;
  weight[0] = 30;
  head.x = Guarded(x, DType::kF32, {1, 64});
  head.weight = Guarded(weight, DType::kF32, {2, 64});
  head.labels = {0};
  head.params.loss_scale = 1;
  const Results results =
      in_every_order([&](const OpTable& t, ThreadPool& pool) { return head.run(t, pool); });
  const double others = std::exp(-30.0);
  BOOST_TEST(std::abs(results[2][0] + 30 * others) <= 0x1p-20 * 30 * others);
  BOOST_TEST(std::abs(results[1][0] - others) <= 0x1p-20 * others);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
