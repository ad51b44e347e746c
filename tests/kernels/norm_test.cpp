// RMS normalisation of every instruction set against the reference.
#include "tests/kernels/run_op.h"

namespace reprise::test {
namespace {

// Sums of up to 577 terms over at least 4 lanes: at most 150 roundings of 2^-24 each in a row.
constexpr double kSumBound = 0x1p-16;
// Both sides round to bf16 once; where the sums differ, the results may be neighbours, 2^-7 apart.
constexpr double kBf16Bound = 0x1p-7;

struct Normed {
  std::vector<float> y, inv_rms;
  bool operator==(const Normed&) const = default;
};

struct NormCase {
  std::int64_t m, c;
  DType out;
};

Normed forward(const OpTable& table, const NormCase& n, const Guarded& x, const Guarded& weight,
               ThreadPool& pool) {
  const Guarded y(n.out, {n.m, n.c}), inv_rms(DType::kF32, {n.m});
  run_op(table.rms_norm_forward,
         RmsNormForwardArgs{.x = x.view(),
                            .weight = weight.view(),
                            .eps = 1e-5f,
                            .y = y.view(),
                            .inv_rms = inv_rms.view()},
         pool);
  BOOST_TEST(y.intact());
  BOOST_TEST(inv_rms.intact());
  return {y.values(), inv_rms.values()};
}

void check_forward(const NormCase& n, Random& random) {
  const Guarded x(normal_values(random, n.m * n.c), DType::kF32, {n.m, n.c});
  const Guarded weight(normal_values(random, n.c), DType::kF32, {n.c});
  ThreadPool one(1), three(3);
  const Normed expected = forward(reference_ops(), n, x, weight, one);
  for (const Isa isa : isas_under_test()) {
    BOOST_TEST_CONTEXT(name_of(isa) << " " << n.m << " x " << n.c << " " << name_of(n.out)) {
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      const Normed normed = forward(table, n, x, weight, one);
      const double bound = n.out == DType::kBF16 ? kBf16Bound : kSumBound;
      BOOST_TEST(relative_error(normed.y, expected.y) <= bound);
      BOOST_TEST(relative_error(normed.inv_rms, expected.inv_rms) <= kSumBound);
      BOOST_TEST((forward(table, n, x, weight, three) == normed));
    }
  }
}

struct BackwardInputs {
  Guarded grad_y, x, weight, inv_rms;
  std::vector<float> initial;
};

std::vector<float> backward(const OpTable& table, const BackwardInputs& in, OutputMode mode,
                            ThreadPool& pool) {
  const Dims dims = in.x.view().dims;
  const Guarded grad_x = mode == OutputMode::kAccumulate ? Guarded(in.initial, DType::kF32, dims)
                                                         : Guarded(DType::kF32, dims);
  run_op(table.rms_norm_backward,
         RmsNormBackwardArgs{.grad_y = in.grad_y.view(),
                             .x = in.x.view(),
                             .weight = in.weight.view(),
                             .inv_rms = in.inv_rms.view(),
                             .grad_x = grad_x.view(),
                             .mode = mode},
         pool);
  BOOST_TEST(grad_x.intact());
  return grad_x.values();
}

void check_backward(std::int64_t m, std::int64_t c, OutputMode mode, Random& random) {
  // inv_rms is an input of its own here: that of x would make one column's gradient cancel.
  std::vector<float> inv_rms;
  for (std::int64_t i = 0; i < m; ++i) {
    inv_rms.push_back(static_cast<float>(0.5 + random.uniform() / 4));
  }
  const BackwardInputs in{.grad_y = Guarded(normal_values(random, m * c), DType::kF32, {m, c}),
                          .x = Guarded(normal_values(random, m * c), DType::kF32, {m, c}),
                          .weight = Guarded(normal_values(random, c), DType::kF32, {c}),
                          .inv_rms = Guarded(inv_rms, DType::kF32, {m}),
                          .initial = normal_values(random, m * c)};
  ThreadPool one(1), three(3);
  const std::vector<float> expected = backward(reference_ops(), in, mode, one);
  for (const Isa isa : isas_under_test()) {
    BOOST_TEST_CONTEXT(name_of(isa) << " " << m << " x " << c) {
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      const std::vector<float> grad_x = backward(table, in, mode, one);
      BOOST_TEST(relative_error(grad_x, expected) <= kSumBound);
      BOOST_TEST((backward(table, in, mode, three) == grad_x));
    }
  }
}

BOOST_AUTO_TEST_SUITE(rms_norm)

BOOST_AUTO_TEST_CASE(forward_of_ragged_sizes) {
  Random random(test_seed(131));
  for (const DType out : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t c : {1, 15, 16, 17, 63, 64, 65, 577}) {
      for (const std::int64_t m : {1, 17, 65}) check_forward({m, c, out}, random);
    }
  }
}

BOOST_AUTO_TEST_CASE(backward_of_ragged_sizes) {
  Random random(test_seed(132));
  for (const OutputMode mode : {OutputMode::kOverwrite, OutputMode::kAccumulate}) {
    for (const std::int64_t c : {1, 15, 16, 17, 63, 64, 65, 577}) {
      for (const std::int64_t m : {1, 17, 65}) check_backward(m, c, mode, random);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
