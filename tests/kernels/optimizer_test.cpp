// The norm of the gradient, clipping and AdamW of every instruction set against the reference.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/run_op.h"

namespace reprise::test {
namespace {

// Around vectors, workers' ranges (4096) and the partial sums of the norm (16384).
constexpr std::int64_t kCounts[] = {1, 15, 16, 17, 63, 65, 4095, 4097, 16384, 16385, 40001};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float norm_of(const OpTable& table, const std::vector<float>& values, ThreadPool& pool) {
  const Guarded grads(values, DType::kF32, {static_cast<std::int64_t>(values.size())});
  const Guarded norm(DType::kF32, {1});
  run_op(table.grad_norm, GradNormArgs{.grads = grads.view(), .norm = norm.view(), .scratch = {}},
         pool);
  BOOST_TEST(norm.intact());
  return norm.values()[0];
}

std::vector<float> decide(const OpTable& table, float norm_value, const std::vector<float>& losses,
                          float max_norm) {
  ThreadPool pool(2);
  const Guarded norm({norm_value}, DType::kF32, {1}), decision(DType::kF32, {2});
  const Guarded loss(losses, DType::kF32, {static_cast<std::int64_t>(losses.size())});
  run_op(table.clip,
         ClipArgs{.norm = norm.view(),
                  .loss = loss.view(),
                  .max_norm = max_norm,
                  .decision = decision.view()},
         pool);
  BOOST_TEST(decision.intact());
  return decision.values();
}

BOOST_AUTO_TEST_SUITE(optimizer)

BOOST_AUTO_TEST_CASE(norm_is_summed_in_double_precision) {
  Random random(test_seed(151));
  ThreadPool one(1), two(2), three(3);
  for (const std::int64_t count : kCounts) {
    const std::vector<float> grads = normal_values(random, count, 1e-3);
    const float expected = norm_of(reference_ops(), grads, one);
    for (const Isa isa : isas_under_test()) {
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      const float norm = norm_of(table, grads, one);
      // Both are rounded once from double: neighbours at most.
      BOOST_TEST(std::abs(norm - expected) <= 0x1p-23 * expected, name_of(isa) << " " << count);
      BOOST_TEST(norm_of(table, grads, two) == norm);
      BOOST_TEST(norm_of(table, grads, three) == norm);
    }
  }
}

// One large gradient among small ones, whose squares a sum in FP32 would drop beside it.
BOOST_AUTO_TEST_CASE(small_gradients_count_beside_a_large_one) {
  ThreadPool pool(2);
  std::vector<float> grads(16384, 0x1p-13f);
  grads[0] = 1;
  const auto expected = static_cast<float>(std::sqrt(1 + 16383 * 0x1p-26));
  for (const Isa isa : isas_under_test()) {
    const float norm = norm_of(cpu_ops(isa, LinearMode::kFused), grads, pool);
    BOOST_TEST(std::abs(norm - expected) <= 0x1p-23f, name_of(isa));
  }
}

BOOST_AUTO_TEST_CASE(one_bad_gradient_anywhere_shows_in_the_norm) {
  ThreadPool pool(2);
  for (const Isa isa : isas_under_test()) {
    const OpTable table = cpu_ops(isa, LinearMode::kFused);
    for (const std::size_t at : {std::size_t{0}, std::size_t{16383}, std::size_t{16400}}) {
      std::vector<float> grads(16401, 1.0f);
      grads[at] = kNaN;
      BOOST_TEST(std::isnan(norm_of(table, grads, pool)), name_of(isa));
      grads[at] = -kInfinity;
      BOOST_TEST(norm_of(table, grads, pool) == kInfinity, name_of(isa));
    }
  }
}

BOOST_AUTO_TEST_CASE(clip_scales_down_and_refuses_what_is_not_finite) {
  using Decision = std::vector<float>;
  for (const Isa isa : isas_under_test()) {
    BOOST_TEST_CONTEXT(name_of(isa)) {
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      BOOST_TEST((decide(table, 0.5f, {1, 2}, 1) == Decision{1, 1}));
      BOOST_TEST((decide(table, 4, {1}, 0) == Decision{1, 1}));
      BOOST_TEST((decide(table, 4, {1}, 1) == Decision{static_cast<float>(1 / (4 + 1e-6)), 1}));
      BOOST_TEST((decide(table, 0, {1}, 1) == Decision{1, 1}));
      for (const float bad : {kNaN, kInfinity, -kInfinity}) {
        BOOST_TEST(decide(table, bad, {1}, 1)[1] == 0);
        BOOST_TEST(decide(table, bad, {1}, 0)[1] == 0);
        BOOST_TEST(decide(table, 0.5f, {1, bad, 2}, 1)[1] == 0);
      }
    }
  }
}

struct AdamWState {
  std::vector<float> params, exp_avg, exp_avg_sq;
  bool operator==(const AdamWState&) const = default;
};

struct AdamWCase {
  std::vector<float> grads, decision;
  StepParams step;
  float eps = 1e-8f;
  float weight_decay = 0;
};

AdamWState updated(const OpTable& table, const AdamWState& before, const AdamWCase& c,
                   ThreadPool& pool) {
  const Dims dims = {static_cast<std::int64_t>(c.grads.size())};
  const Guarded grads(c.grads, DType::kF32, dims), decision(c.decision, DType::kF32, {2});
  const Guarded params(before.params, DType::kF32, dims);
  const Guarded exp_avg(before.exp_avg, DType::kF32, dims);
  const Guarded exp_avg_sq(before.exp_avg_sq, DType::kF32, dims);
  run_op(table.adamw,
         AdamWArgs{.params = params.view(),
                   .grads = grads.view(),
                   .exp_avg = exp_avg.view(),
                   .exp_avg_sq = exp_avg_sq.view(),
                   .decision = decision.view(),
                   .step_params = &c.step,
                   .eps = c.eps,
                   .weight_decay = c.weight_decay},
         pool);
  for (const Guarded* const output : {&params, &exp_avg, &exp_avg_sq}) BOOST_TEST(output->intact());
  return {params.values(), exp_avg.values(), exp_avg_sq.values()};
}

AdamWState random_state(Random& random, std::int64_t count) {
  AdamWState state{normal_values(random, count), normal_values(random, count, 0.1),
                   normal_values(random, count, 0.1)};
  for (float& value : state.exp_avg_sq) value = std::abs(value) + 0.01f;
  return state;
}

// About ten roundings of 2^-24 each, of numbers up to a few times the largest of 1 and the result.
double worst(const std::vector<float>& values, const std::vector<float>& expected) {
  double error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double want = expected[i], scale = std::max(1.0, std::abs(want));
    const double here = std::abs(values[i] - want) / scale;
    error = here <= error ? error : here;  // a NaN stays
  }
  return error;
}

void check_adamw(const AdamWCase& c, Random& random) {
  ThreadPool one(1), three(3);
  const AdamWState before = random_state(random, static_cast<std::int64_t>(c.grads.size()));
  const AdamWState expected = updated(reference_ops(), before, c, one);
  for (const Isa isa : isas_under_test()) {
    BOOST_TEST_CONTEXT(name_of(isa) << " " << c.grads.size() << " step " << c.step.step) {
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      const AdamWState after = updated(table, before, c, one);
      BOOST_TEST(worst(after.params, expected.params) <= 0x1p-20);
      BOOST_TEST(worst(after.exp_avg, expected.exp_avg) <= 0x1p-20);
      BOOST_TEST(relative_error(after.exp_avg_sq, expected.exp_avg_sq) <= 0x1p-20);
      BOOST_TEST((updated(table, before, c, three) == after));
    }
  }
}

BOOST_AUTO_TEST_CASE(adamw_follows_the_reference) {
  Random random(test_seed(152));
  for (const std::int64_t count : kCounts) {
    for (const std::int64_t step : {1, 2, 1000}) {
      check_adamw({.grads = normal_values(random, count),
                   .decision = {0.25f, 1},
                   .step = {.step = step, .learning_rate = 1e-2f},
                   .weight_decay = 0.1f},
                  random);
    }
  }
  // An eps that matters: it is added after the correction of the root.
  check_adamw({.grads = normal_values(random, 65),
               .decision = {1, 1},
               .step = {.step = 1, .learning_rate = 1e-2f},
               .eps = 0.1f},
              random);
}

BOOST_AUTO_TEST_CASE(a_refused_step_changes_no_bit) {
  Random random(test_seed(153));
  ThreadPool pool(2);
  const AdamWState before = random_state(random, 4097);
  const AdamWCase c{.grads = std::vector<float>(4097, kNaN),
                    .decision = {kNaN, 0},
                    .step = {.step = 3, .learning_rate = 1e-2f},
                    .weight_decay = 0.1f};
  for (const Isa isa : isas_under_test()) {
    const AdamWState after = updated(cpu_ops(isa, LinearMode::kFused), before, c, pool);
    BOOST_TEST((after == before), name_of(isa));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
