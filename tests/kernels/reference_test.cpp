// The reference against numbers worked out by hand: it is the oracle of the other tests, so nothing
// here comes from the code that it checks. Gradients are checked in tests/gradients.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "reprise/kernels/op_table.h"

namespace reprise::test {
namespace {

View view(std::vector<float>& values, Dims dims) { return {values.data(), DType::kF32, dims}; }

View vector_view(std::vector<float>& values) {
  return view(values, {static_cast<std::int64_t>(values.size())});
}

// Runs the reference, which must be the only implementation and support the arguments.
template <class Args>
void run(const Implementations<Args>& list, const Args& args) {
  BOOST_REQUIRE_EQUAL(list.size(), 1u);
  const Support support = list[0].supports(args);
  BOOST_REQUIRE_MESSAGE(support.ok(), support.reason());
  list[0].run(args, {});
}

std::vector<float> decision(float norm, std::vector<float> loss, float max_norm) {
  std::vector<float> norms{norm}, result(2, -1);
  run(reference_ops().clip, ClipArgs{.norm = vector_view(norms),
                                     .loss = vector_view(loss),
                                     .max_norm = max_norm,
                                     .decision = vector_view(result)});
  return result;
}

struct Optimizer {
  std::vector<float> params{2, -1}, grads{0.5f, -4}, exp_avg{0, 0}, exp_avg_sq{0, 0};
  std::vector<float> decision{1, 1};
  StepParams step_params{.step = 1, .learning_rate = 0.125f};
  float weight_decay = 0;

  void step() {
    run(reference_ops().adamw, AdamWArgs{.params = vector_view(params),
                                         .grads = vector_view(grads),
                                         .exp_avg = vector_view(exp_avg),
                                         .exp_avg_sq = vector_view(exp_avg_sq),
                                         .decision = vector_view(decision),
                                         .step_params = &step_params,
                                         .beta1 = 0.5f,
                                         .beta2 = 0.75f,
                                         .eps = 0x1p-20f,
                                         .weight_decay = weight_decay});
  }
};

// All values are stored in FP32: half an ulp each, a few of them behind each other.
const auto kClose = boost::test_tools::tolerance(1e-6f);

BOOST_AUTO_TEST_SUITE(reference)

BOOST_AUTO_TEST_CASE(grad_norm_of_a_pythagorean_triple) {
  std::vector<float> grads{3, 0, -4}, norm{-1};
  run(reference_ops().grad_norm,
      GradNormArgs{.grads = vector_view(grads), .norm = vector_view(norm), .scratch = {}});
  BOOST_TEST(norm[0] == 5.0f);
}

BOOST_AUTO_TEST_CASE(clip_scales_down_but_never_up) {
  BOOST_TEST(decision(4, {1}, 2)[0] == 0.5f, kClose);  // 2 / (4 + 1e-6)
  BOOST_TEST(decision(1, {1}, 2)[0] == 1.0f);
  BOOST_TEST(decision(1e6f, {1}, 0)[0] == 1.0f);  // 0: no clipping
  BOOST_TEST(decision(0, {1}, 2)[0] == 1.0f);
}

BOOST_AUTO_TEST_CASE(clip_refuses_steps_that_are_not_finite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  BOOST_TEST(decision(1, {1, 2}, 1)[1] == 1.0f);
  BOOST_TEST(decision(NAN, {1, 2}, 1)[1] == 0.0f);
  BOOST_TEST(decision(kInfinity, {1, 2}, 1)[1] == 0.0f);
  BOOST_TEST(decision(1, {1, NAN}, 1)[1] == 0.0f);
  BOOST_TEST(decision(1, {-kInfinity, 2}, 0)[1] == 0.0f);
}

// Step 1 from zero moments: exp_avg / 0.5 = g and sqrt(exp_avg_sq) / sqrt(0.25) = |g|, so that
// every parameter moves by lr against the sign of its gradient (less eps / |g|, 2e-6 of the move).
BOOST_AUTO_TEST_CASE(adamw_first_step_moves_by_the_learning_rate) {
  Optimizer optimizer;
  optimizer.step();
  BOOST_TEST(optimizer.exp_avg[0] == 0.25f);       // 0.5 * 0.5
  BOOST_TEST(optimizer.exp_avg[1] == -2.0f);       // 0.5 * -4
  BOOST_TEST(optimizer.exp_avg_sq[0] == 0.0625f);  // 0.25 * 0.25
  BOOST_TEST(optimizer.exp_avg_sq[1] == 4.0f);     // 0.25 * 16
  BOOST_TEST(optimizer.params[0] == 1.875f, kClose);
  BOOST_TEST(optimizer.params[1] == -0.875f, kClose);
}

// Step 2 with the gradient gone: exp_avg = 0.125, corrected by 1 - 0.5^2 = 0.75 to 1/6;
// exp_avg_sq = 0.046875, corrected by 1 - 0.75^2 = 0.4375 to 3/28. Move: 0.125 * (1/6) /
// sqrt(3/28).
BOOST_AUTO_TEST_CASE(adamw_second_step_corrects_the_bias_of_both_moments) {
  Optimizer optimizer;
  optimizer.step();
  optimizer.grads = {0, 0};
  optimizer.step_params.step = 2;
  optimizer.step();
  BOOST_TEST(optimizer.exp_avg[0] == 0.125f);
  BOOST_TEST(optimizer.exp_avg_sq[0] == 0.046875f);
  BOOST_TEST(optimizer.params[0] == 1.875f - 0.0636469f, kClose);
}

// Decay takes lr * weight_decay of the parameter as it was before the step, and nothing of the
// moments.
BOOST_AUTO_TEST_CASE(adamw_decay_is_decoupled) {
  Optimizer optimizer;
  optimizer.weight_decay = 0.5f;
  optimizer.step();
  BOOST_TEST(optimizer.params[0] == 2 * (1 - 0.0625f) - 0.125f, kClose);
  BOOST_TEST(optimizer.exp_avg[0] == 0.25f);
}

BOOST_AUTO_TEST_CASE(adamw_applies_the_decision) {
  Optimizer clipped;
  clipped.decision = {0.5f, 1};
  clipped.step();
  BOOST_TEST(clipped.exp_avg[1] == -1.0f);    // of a gradient of -2
  BOOST_TEST(clipped.exp_avg_sq[1] == 1.0f);  // 0.25 * 4

  Optimizer refused;
  refused.decision = {1, 0};
  refused.grads = {NAN, 1};
  refused.step();
  BOOST_TEST(refused.params == Optimizer().params, boost::test_tools::per_element());
  BOOST_TEST(refused.exp_avg == Optimizer().exp_avg, boost::test_tools::per_element());
  BOOST_TEST(refused.exp_avg_sq == Optimizer().exp_avg_sq, boost::test_tools::per_element());
}

// W is [2, 33], so that the second block of 64 begins at element (1, 31). Code 15 is 1 and code 0
// is -1. x has ones where it looks: columns 30 and 31.
BOOST_AUTO_TEST_CASE(linear_reads_either_nibble_order_across_block_borders) {
  const std::vector<float> absmax{2, 8};
  for (const NibbleOrder order : {NibbleOrder::kHighFirst, NibbleOrder::kLowFirst}) {
    // Elements alternate 1, -1 from an even element on.
    const std::vector<std::uint8_t> packed(33, order == NibbleOrder::kHighFirst ? 0xf0 : 0x0f);
    std::vector<float> x(33, 0), y{100, 200}, bias{0.5f, -0.5f};
    x[30] = 1;
    x[31] = 16;
    LinearNf4ForwardArgs args;
    args.x = view(x, {1, 33});
    args.weight = {.packed = packed.data(),
                   .absmax = absmax.data(),
                   .n = 2,
                   .k = 33,
                   .block_size = 64,
                   .order = order};
    args.bias = vector_view(bias);
    args.y = view(y, {1, 2});
    args.mode = OutputMode::kAccumulate;
    run(reference_ops().linear_nf4_forward, args);
    BOOST_TEST(y[0] == 100 + 2 - 32 + 0.5f);   // elements 30 and 31, both of block 0
    BOOST_TEST(y[1] == 200 - 2 + 128 - 0.5f);  // element 63 of block 0, element 64 of block 1
  }
}

// The bf16 neighbours of 1 + 2^-9 are 1 and 1 + 2^-7; the nearer one is 1.
BOOST_AUTO_TEST_CASE(bf16_products_round_their_operands_once) {
  std::vector<float> x{1 + 0x1p-9f}, weight{1 + 0x1p-7f}, logits{-1};
  LmHeadArgs args;
  args.x = view(x, {1, 1});
  args.weight = view(weight, {1, 1});
  args.logits = view(logits, {1, 1});
  args.compute = ComputeType::kBF16;
  run(reference_ops().lm_head, args);
  BOOST_TEST(logits[0] == 1 + 0x1p-7f);  // the weight is a bf16 value and stays
  args.compute = ComputeType::kF32;
  run(reference_ops().lm_head, args);
  BOOST_TEST(logits[0] == 1 + 0x1p-7f + 0x1p-9f + 0x1p-16f);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
