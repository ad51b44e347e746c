// The norm of the gradient, clip and AdamW on the device against the reference.
#include <cmath>
#include <limits>

#include "tests/cuda/on_device.h"
#include "tests/kernels/run_op.h"

namespace reprise::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// Around warps, blocks, and the 4096 elements of a partial sum.
constexpr std::int64_t kCounts[] = {1, 17, 255, 257, 4095, 4097, 40001};

Op norm_of(const std::vector<float>& values) {
  return [&values](const OpTable& table, ThreadPool& pool) -> Results {
    const Guarded grads(values, DType::kF32, {static_cast<std::int64_t>(values.size())});
    const Guarded norm(DType::kF32, {1});
    run_op(table.grad_norm, GradNormArgs{.grads = grads.view(), .norm = norm.view(), .scratch = {}},
           pool);
    return {norm.values()};
  };
}

Op decision_of(float norm_value, const std::vector<float>& losses, float max_norm) {
  return [=](const OpTable& table, ThreadPool& pool) -> Results {
    const Guarded norm({norm_value}, DType::kF32, {1}), decision(DType::kF32, {2});
    const Guarded loss(losses, DType::kF32, {static_cast<std::int64_t>(losses.size())});
    run_op(table.clip,
           ClipArgs{.norm = norm.view(),
                    .loss = loss.view(),
                    .max_norm = max_norm,
                    .decision = decision.view()},
           pool);
    return {decision.values()};
  };
}

struct AdamWCase {
  std::int64_t count = 0;
  std::int64_t step = 1;
  std::vector<float> decision = {0.25f, 1};
  float eps = 1e-8f;
};

Op adamw(const AdamWCase& c, Random& random) {
  const Dims dims = {c.count};
  const std::vector<float> values = normal_values(random, c.count),
                           grads = normal_values(random, c.count),
                           first = normal_values(random, c.count, 0.1);
  std::vector<float> second = normal_values(random, c.count, 0.1);
  for (float& value : second) value = std::abs(value) + 0.01f;
  return [=](const OpTable& table, ThreadPool& pool) -> Results {
    const Guarded params(values, DType::kF32, dims), grad(grads, DType::kF32, dims);
    const Guarded exp_avg(first, DType::kF32, dims), exp_avg_sq(second, DType::kF32, dims);
    const Guarded decision(c.decision, DType::kF32, {2});
    const StepParams step = {.step = c.step, .learning_rate = 1e-2f};
    run_op(table.adamw,
           AdamWArgs{.params = params.view(),
                     .grads = grad.view(),
                     .exp_avg = exp_avg.view(),
                     .exp_avg_sq = exp_avg_sq.view(),
                     .decision = decision.view(),
                     .step_params = &step,
                     .eps = c.eps,
                     .weight_decay = 0.1f},
           pool);
    return {params.values(), exp_avg.values(), exp_avg_sq.values()};
  };
}

BOOST_AUTO_TEST_SUITE(cuda_optimizer)

BOOST_AUTO_TEST_CASE(norm_is_summed_in_double_precision) {
  Random random(test_seed(341));
  for (const std::int64_t count : kCounts) {
    // Both are rounded once from double: neighbours at most.
    const std::vector<float> grads = normal_values(random, count, 1e-3);
    check_close(norm_of(grads), 0x1p-23);
  }
  // Small gradients beside a large one, whose squares a sum in FP32 would drop.
  std::vector<float> uneven(16384, 0x1p-13f);
  uneven[0] = 1;
  check_close(norm_of(uneven), 0x1p-23);
}

BOOST_AUTO_TEST_CASE(one_bad_gradient_shows_in_the_norm) {
  std::vector<float> grads(5000, 1.0f);
  grads[4999] = kNaN;
  ThreadPool pool(1);
  const float norm = norm_of(grads)(on_device(), pool)[0][0];
  BOOST_TEST(std::isnan(norm));
  grads[4999] = -kInfinity;
  BOOST_TEST(in_every_order(norm_of(grads))[0][0] == kInfinity);
}

BOOST_AUTO_TEST_CASE(clip_scales_down_and_refuses_what_is_not_finite) {
  check_exact(decision_of(0.5f, {1, 2}, 1));
  check_exact(decision_of(4, {1}, 0));
  check_exact(decision_of(4, {1}, 1));
  check_exact(decision_of(0, {1}, 1));
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    BOOST_TEST(in_every_order(decision_of(bad, {1}, 0))[0][1] == 0.0f);
    BOOST_TEST(in_every_order(decision_of(0.5f, {1, bad, 2}, 1))[0][1] == 0.0f);
  }
}

// About ten roundings of 2^-24 each.
BOOST_AUTO_TEST_CASE(adamw_follows_the_reference) {
  Random random(test_seed(342));
  for (const std::int64_t count : kCounts) {
    for (const std::int64_t step : {1, 2, 1000}) {
      check_close(adamw({.count = count, .step = step}, random), 0x1p-20);
    }
  }
  // An eps that matters: it is added after the correction of the root.
  check_close(adamw({.count = 65, .decision = {1, 1}, .eps = 0.1f}, random), 0x1p-20);
}

BOOST_AUTO_TEST_CASE(a_refused_step_changes_no_bit) {
  Random random(test_seed(343));
  check_exact(adamw({.count = 4097, .decision = {0.5f, 0}}, random));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
