// Gradients of the frozen NF4 layer and its adapter, with and without the adapter and dropout.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>
#include <utility>

#include "tests/gradients/directional.h"

namespace reprise::test {
namespace {

struct LinearCase {
  std::int64_t m, n, k, rank;  // rank 0: no adapter
  float dropout;
  std::int64_t block_size = 64;
};

// One layer in FP32 and everything that its two passes read and write.
struct Layer {
  LinearCase size;
  StepParams params{.step = 3, .seed = 77, .micro_step = 1};
  std::vector<float> x, a, b, bias, grad_y, absmax, y, u;
  std::vector<std::uint8_t> packed;
  float scale = 1.5f;

  Layer(const LinearCase& c, Random& random)
      : size(c),
        x(grid_values(random, c.m * c.k)),
        a(grid_values(random, c.rank * c.k)),
        b(grid_values(random, c.n * c.rank)),
        bias(grid_values(random, c.n)),
        grad_y(grid_values(random, c.m * c.n)),
        absmax(static_cast<std::size_t>(nf4_blocks(c.n * c.k, c.block_size))),
        y(zeros(c.m * c.n)),
        u(zeros(c.m * c.rank)),
        packed(static_cast<std::size_t>(nf4_packed_bytes(c.n * c.k))) {
    for (float& value : absmax) value = static_cast<float>(0.5 + random.uniform());
    for (std::uint8_t& byte : packed) byte = static_cast<std::uint8_t>(random.bits());
  }

  Nf4View weight() const {
    return {.packed = packed.data(),
            .absmax = absmax.data(),
            .n = size.n,
            .k = size.k,
            .block_size = size.block_size,
            .order = NibbleOrder::kHighFirst};
  }
  Dropout dropout() const { return {.probability = size.dropout, .site = 5, .params = &params}; }
  ConstView view_a() const { return view(a, {size.rank, size.k}); }

  const std::vector<float>& forward() {
    LinearNf4ForwardArgs args;
    args.x = view(x, {size.m, size.k});
    args.weight = weight();
    args.bias = view(bias, {size.n});
    if (size.rank > 0) {
      args.lora = {.a = view_a(),
                   .b = view(std::as_const(b), {size.n, size.rank}),
                   .u = view(u, {size.m, size.rank}),
                   .scale = scale,
                   .dropout = dropout()};
    }
    args.y = view(y, {size.m, size.n});
    run_op(reference_table().linear_nf4_forward, args, "linear_nf4_forward");
    return y;
  }
};

struct Gradients {
  std::vector<float> x, a, b, u;
};

// False: the table lacks an op.
bool lora_gradients(const NamedTable& table, const Layer& layer, Gradients& grad) {
  const LinearCase& s = layer.size;
  grad.a.assign(layer.a.size(), NAN);
  grad.b.assign(layer.b.size(), NAN);
  grad.u.assign(layer.u.size(), NAN);
  LoraBackwardArgs args;
  args.grad_y = view(layer.grad_y, {s.m, s.n});
  args.x = view(layer.x, {s.m, s.k});
  args.u = view(layer.u, {s.m, s.rank});
  args.a = layer.view_a();
  args.b = view(layer.b, {s.n, s.rank});
  args.scale = layer.scale;
  args.dropout = layer.dropout();
  args.grad_u = view(grad.u, {s.m, s.rank});
  args.grad_a = view(grad.a, {s.rank, s.k});
  args.grad_b = view(grad.b, {s.n, s.rank});
  return ran(table, run_op(table.ops.lora_backward, args, "lora_backward"), "lora_backward");
}

bool input_gradient(const NamedTable& table, const Layer& layer, Gradients& grad) {
  const LinearCase& s = layer.size;
  grad.x.assign(layer.x.size(), NAN);
  LinearNf4BackwardArgs args;
  args.grad_y = view(layer.grad_y, {s.m, s.n});
  args.weight = layer.weight();
  if (s.rank > 0) {
    args.lora = {.a = layer.view_a(),
                 .grad_u = view(std::as_const(grad.u), {s.m, s.rank}),
                 .dropout = layer.dropout()};
  }
  args.grad_x = view(grad.x, {s.m, s.k});
  return ran(table, run_op(table.ops.linear_nf4_backward, args, "linear_nf4_backward"),
             "linear_nf4_backward");
}

void check_layer(const NamedTable& table, const LinearCase& size, Random& random) {
  Layer layer(size, random);
  layer.forward();
  Gradients grad;
  if (size.rank > 0 && !lora_gradients(table, layer, grad)) return;
  if (!input_gradient(table, layer, grad)) return;
  const std::string what = table.name + " linear m " + std::to_string(size.m) + " k " +
                           std::to_string(size.k) + " rank " + std::to_string(size.rank) +
                           " dropout " + std::to_string(size.dropout);
  GradientCheck check{.what = what + " grad_x",
                      .input = &layer.x,
                      .grad = &grad.x,
                      .forward = [&layer] { return layer.forward(); },
                      .grad_y = &layer.grad_y};
  check_gradient(check, random);
  if (size.rank == 0) return;
  check.what = what + " grad_a";
  check.input = &layer.a;
  check.grad = &grad.a;
  check_gradient(check, random);
  check.what = what + " grad_b";
  check.input = &layer.b;
  check.grad = &grad.b;
  check_gradient(check, random);
}

BOOST_AUTO_TEST_SUITE(linear_gradients)

BOOST_AUTO_TEST_CASE(input_and_adapter) {
  Random random(test_seed(21));
  for (const NamedTable& table : tables_under_test()) {
    check_layer(table, {.m = 5, .n = 33, .k = 96, .rank = 0, .dropout = 0}, random);
    check_layer(table, {.m = 5, .n = 33, .k = 96, .rank = 4, .dropout = 0}, random);
    check_layer(table, {.m = 7, .n = 17, .k = 64, .rank = 3, .dropout = 0.25f}, random);
    check_layer(table, {.m = 1, .n = 65, .k = 192, .rank = 8, .dropout = 0.5f, .block_size = 128},
                random);
  }
}

// grad_u is the gradient in u of scale * u . B^T, linear in u: with B one-hot in row n, it is
// scale * grad_y[m, n] exactly.
BOOST_AUTO_TEST_CASE(gradient_of_u_picks_the_rows_of_b) {
  Random random(test_seed(22));
  for (const NamedTable& table : tables_under_test()) {
    Layer layer({.m = 3, .n = 9, .k = 64, .rank = 2, .dropout = 0}, random);
    layer.b.assign(layer.b.size(), 0);
    layer.b[4 * 2 + 0] = 1;
    layer.b[7 * 2 + 1] = 1;
    layer.forward();
    Gradients grad;
    if (!lora_gradients(table, layer, grad)) continue;
    for (std::size_t m = 0; m < 3; ++m) {
      BOOST_TEST(grad.u[m * 2 + 0] == layer.scale * layer.grad_y[m * 9 + 4]);
      BOOST_TEST(grad.u[m * 2 + 1] == layer.scale * layer.grad_y[m * 9 + 7]);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
