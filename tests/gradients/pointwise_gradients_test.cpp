// Gradients of the ops without products of matrices: RMS norm, RoPE, SwiGLU, residual.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "tests/gradients/directional.h"

namespace reprise::test {
namespace {

struct NormCase {
  std::int64_t m, c;
  float eps;
};

BOOST_AUTO_TEST_SUITE(pointwise_gradients)

BOOST_AUTO_TEST_CASE(rms_norm) {
  Random random(test_seed(11));
  // A large eps makes inv_rms depend on it, which a formula without eps would not show.
  for (const NormCase& size : {NormCase{1, 17, 1e-5f}, {5, 65, 0.5f}, {3, 192, 1e-6f}}) {
    const std::int64_t m = size.m, c = size.c;
    std::vector<float> x = grid_values(random, m * c), y = zeros(m * c), inv_rms = zeros(m);
    const std::vector<float> weight = grid_values(random, c), grad_y = grid_values(random, m * c);
    const auto forward = [&] {
      run_op<RmsNormForwardArgs>(reference_table().rms_norm_forward,
                                 {.x = view(x, {m, c}),
                                  .weight = view(weight, {c}),
                                  .eps = size.eps,
                                  .y = view(y, {m, c}),
                                  .inv_rms = view(inv_rms, {m})},
                                 "rms_norm_forward");
      return y;
    };
    forward();
    for (const NamedTable& table : tables_under_test()) {
      for (const OutputMode mode : {OutputMode::kOverwrite, OutputMode::kAccumulate}) {
        std::vector<float> grad_x(x.size(), mode == OutputMode::kAccumulate ? 0.0f : NAN);
        const bool has_run = run_op<RmsNormBackwardArgs>(table.ops.rms_norm_backward,
                                                         {.grad_y = view(grad_y, {m, c}),
                                                          .x = view(x, {m, c}),
                                                          .weight = view(weight, {c}),
                                                          .inv_rms = view(inv_rms, {m}),
                                                          .grad_x = view(grad_x, {m, c}),
                                                          .mode = mode},
                                                         "rms_norm_backward");
        if (!ran(table, has_run, "rms_norm_backward")) continue;
        check_gradient({.what = table.name + " rms_norm grad_x",
                        .input = &x,
                        .grad = &grad_x,
                        .forward = forward,
                        .grad_y = &grad_y},
                       random);
        forward();  // inv_rms of x itself again
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(rope) {
  Random random(test_seed(12));
  const std::int64_t seq = 5, m = 2 * seq, heads = 3, half = 9, width = heads * 2 * half;
  std::vector<float> x = grid_values(random, m * width), y = zeros(m * width), table;
  for (std::int64_t i = 0; i < seq * half; ++i) {
    const double angle = 6 * random.uniform();
    table.push_back(static_cast<float>(std::cos(angle)));
    table.push_back(static_cast<float>(std::sin(angle)));
  }
  const std::vector<float> grad_y = grid_values(random, m * width);
  const auto args = [&](const std::vector<float>& from, std::vector<float>& to) {
    return RopeArgs{.x = view(from, {m, width}),
                    .table = view(table, {seq, half, 2}),
                    .heads = heads,
                    .y = view(to, {m, width})};
  };
  const auto forward = [&] {
    run_op<RopeArgs>(reference_table().rope, args(x, y), "rope");
    return y;
  };
  for (const NamedTable& under_test : tables_under_test()) {
    std::vector<float> grad_x(x.size(), NAN);
    RopeArgs inverse = args(grad_y, grad_x);
    inverse.direction = RopeDirection::kInverse;
    if (!ran(under_test, run_op(under_test.ops.rope, inverse, "rope"), "rope")) continue;
    check_gradient({.what = under_test.name + " rope grad_x",
                    .input = &x,
                    .grad = &grad_x,
                    .forward = forward,
                    .grad_y = &grad_y},
                   random);
  }
}

BOOST_AUTO_TEST_CASE(swiglu) {
  Random random(test_seed(13));
  const std::int64_t m = 3, f = 65;
  std::vector<float> gate = grid_values(random, m * f), up = grid_values(random, m * f);
  std::vector<float> y = zeros(m * f);
  const std::vector<float> grad_y = grid_values(random, m * f);
  const auto forward = [&] {
    run_op<SwigluForwardArgs>(
        reference_table().swiglu_forward,
        {.gate = view(gate, {m, f}), .up = view(up, {m, f}), .y = view(y, {m, f})},
        "swiglu_forward");
    return y;
  };
  for (const NamedTable& table : tables_under_test()) {
    std::vector<float> grad_gate(gate.size(), NAN), grad_up(up.size(), NAN);
    const bool has_run = run_op<SwigluBackwardArgs>(table.ops.swiglu_backward,
                                                    {.grad_y = view(grad_y, {m, f}),
                                                     .gate = view(gate, {m, f}),
                                                     .up = view(up, {m, f}),
                                                     .grad_gate = view(grad_gate, {m, f}),
                                                     .grad_up = view(grad_up, {m, f})},
                                                    "swiglu_backward");
    if (!ran(table, has_run, "swiglu_backward")) continue;
    GradientCheck check{.what = table.name + " swiglu grad_gate",
                        .input = &gate,
                        .grad = &grad_gate,
                        .forward = forward,
                        .grad_y = &grad_y};
    check_gradient(check, random);
    check.what = table.name + " swiglu grad_up";
    check.input = &up;
    check.grad = &grad_up;
    check_gradient(check, random);
  }
}

// The gradient passes through unchanged to both operands; no op computes it.
BOOST_AUTO_TEST_CASE(residual) {
  Random random(test_seed(14));
  const std::int64_t m = 3, c = 17;
  std::vector<float> a = grid_values(random, m * c), b = grid_values(random, m * c);
  std::vector<float> y = zeros(m * c);
  const std::vector<float> grad_y = grid_values(random, m * c);
  for (const NamedTable& table : tables_under_test()) {
    const auto forward = [&] {
      run_op<ResidualArgs>(table.ops.residual,
                           {.a = view(a, {m, c}), .b = view(b, {m, c}), .y = view(y, {m, c})},
                           "residual");
      return y;
    };
    if (!ran(table, !table.ops.residual.empty(), "residual")) continue;
    for (std::vector<float>* input : {&a, &b}) {
      check_gradient({.what = table.name + " residual",
                      .input = input,
                      .grad = &grad_y,
                      .forward = forward,
                      .grad_y = &grad_y},
                     random);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
