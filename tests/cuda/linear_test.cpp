// The frozen layer and its adapter on the device, forward and backward, against the reference.
#include <algorithm>
#include <array>

#include "tests/cuda/on_device.h"
#include "tests/kernels/run_op.h"

namespace reprise::test {
namespace {

constexpr std::array<std::int64_t, 11> kSizes = {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200};

// Each size once as M, once as N and once as K, in an order of its own for each.
std::vector<LayerCase> ragged_cases(Random& random) {
  std::array<std::array<std::int64_t, kSizes.size()>, 3> orders = {kSizes, kSizes, kSizes};
  for (auto& order : orders) {
    for (std::size_t i = order.size() - 1; i > 0; --i) {
      std::swap(order[i],
                order[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i)))]);
    }
  }
  const auto either = [&](auto a, auto b) { return random.uniform() < 0.5 ? a : b; };
  constexpr std::array<std::int64_t, 6> kRanks = {0, 1, 8, 16, 33, 65};
  std::vector<LayerCase> cases;
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    cases.push_back({.m = orders[0][i],
                     .n = orders[1][i],
                     .k = orders[2][i],
                     .rank = kRanks[i % kRanks.size()],
                     .dropout = either(0.0f, 0.5f),
                     .mode = either(OutputMode::kOverwrite, OutputMode::kAccumulate),
                     .in = either(DType::kF32, DType::kBF16),
                     .out = either(DType::kF32, DType::kBF16),
                     .order = either(NibbleOrder::kHighFirst, NibbleOrder::kLowFirst),
                     .block_size = either(64, 128),
                     .bias = random.uniform() < 0.5});
  }
  return cases;
}

using Pass = Results (*)(const OpTable&, const Layer&, ThreadPool&);

Results forward(const OpTable& table, const Layer& layer, ThreadPool& pool) {
  const LayerCase& c = layer.c;
  const Guarded y = layer.output(c.out, {c.m, c.n}, c.mode);
  const Guarded u(DType::kF32, {c.m, std::max<std::int64_t>(c.rank, 1)});
  LinearNf4ForwardArgs args;
  args.compute = c.compute;
  args.x = layer.x.view();
  args.weight = layer.weight();
  if (c.bias) args.bias = layer.bias.view();
  if (c.rank > 0) {
    args.lora = {.a = layer.a.view(),
                 .b = layer.b.view(),
                 .u = u.view(),
                 .scale = layer.scale,
                 .dropout = layer.dropout()};
  }
  args.y = y.view();
  args.mode = c.mode;
  run_op(table.linear_nf4_forward, args, pool);
  if (c.rank == 0) return {y.values()};
  return {y.values(), u.values()};
}

Results backward(const OpTable& table, const Layer& layer, ThreadPool& pool) {
  const LayerCase& c = layer.c;
  const Guarded grad_x = layer.output(c.out, {c.m, c.k}, c.mode);
  LinearNf4BackwardArgs args;
  args.compute = c.compute;
  args.grad_y = layer.grad_y.view();
  args.weight = layer.weight();
  if (c.rank > 0) {
    args.lora = {.a = layer.a.view(), .grad_u = layer.grad_u.view(), .dropout = layer.dropout()};
  }
  args.grad_x = grad_x.view();
  args.mode = c.mode;
  run_op(table.linear_nf4_backward, args, pool);
  return {grad_x.values()};
}

Results adapter(const OpTable& table, const Layer& layer, ThreadPool& pool) {
  const LayerCase& c = layer.c;
  const Guarded grad_u(DType::kF32, {c.m, c.rank});
  const Guarded grad_a = layer.output(DType::kF32, {c.rank, c.k}, c.mode);
  const Guarded grad_b = layer.output(DType::kF32, {c.n, c.rank}, c.mode);
  LoraBackwardArgs args;
  args.compute = c.compute;
  args.grad_y = layer.grad_y.view();
  args.x = layer.x.view();
  args.u = layer.u.view();
  args.a = layer.a.view();
  args.b = layer.b.view();
  args.scale = layer.scale;
  args.dropout = layer.dropout();
  args.grad_u = grad_u.view();
  args.grad_a = grad_a.view();
  args.grad_b = grad_b.view();
  args.mode = c.mode;
  run_op(table.lora_backward, args, pool);
  return {grad_u.values(), grad_a.values(), grad_b.values()};
}

// Whole numbers: nothing rounds, so all bits are the reference's. Normal values: both round the
// same operands, so in FP32 only the order of a sum differs, of up to 200 + 65 terms: at most 266
// roundings of 2^-24 in a row, in practice their root, 2^-20. A bf16 result is rounded once on
// either side, and where the sums straddle a tie the two are neighbours, 2^-7 apart in the worst
// element and far less in the norm.
void check_pass(Pass pass, LayerCase c, Random& random) {
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    c.compute = compute;
    BOOST_TEST_CONTEXT(to_string(c)) {
      const Layer whole(c, Values::kSmallIntegers, random);
      check_exact([&](const OpTable& t, ThreadPool& pool) { return pass(t, whole, pool); });
      const Layer normal(c, Values::kNormal, random);
      check_close([&](const OpTable& t, ThreadPool& pool) { return pass(t, normal, pool); },
                  c.out == DType::kBF16 ? 0x1p-9 : 0x1p-18);
    }
  }
}

BOOST_AUTO_TEST_SUITE(cuda_linear)

BOOST_AUTO_TEST_CASE(forward_of_ragged_shapes) {
  Random random(test_seed(301));
  for (const LayerCase& c : ragged_cases(random)) check_pass(forward, c, random);
}

BOOST_AUTO_TEST_CASE(backward_of_ragged_shapes) {
  Random random(test_seed(302));
  for (const LayerCase& c : ragged_cases(random)) check_pass(backward, c, random);
}

BOOST_AUTO_TEST_CASE(adapter_of_ragged_shapes) {
  Random random(test_seed(303));
  for (LayerCase c : ragged_cases(random)) {
    if (c.rank == 0) c.rank = 4;
    c.out = DType::kF32;
    check_pass(adapter, c, random);
  }
}

// Each code under its own scale, in both nibbles and across the ends of rows: x is the identity, so
// the result is the weight, which is codebook * absmax rounded once.
BOOST_AUTO_TEST_CASE(every_weight_is_decoded_to_the_bit) {
  Random random(test_seed(304));
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    for (const NibbleOrder order : {NibbleOrder::kHighFirst, NibbleOrder::kLowFirst}) {
      Layer layer({.compute = compute, .m = 95, .n = 33, .k = 95, .order = order}, Values::kNormal,
                  random);
      for (std::uint8_t& byte : layer.packed) byte = static_cast<std::uint8_t>(random.bits());
      std::vector<float> identity(95 * 95);
      for (std::size_t i = 0; i < 95; ++i) identity[i * 96] = 1;
      layer.x = Guarded(identity, DType::kF32, {95, 95});
      check_exact([&](const OpTable& t, ThreadPool& pool) { return forward(t, layer, pool); });
    }
  }
}

// Other probabilities than 1/2, and steps and elements beyond 32 bits of a counter word.
BOOST_AUTO_TEST_CASE(dropout_draws_what_the_host_draws) {
  Random random(test_seed(305));
  for (const float probability : {0.05f, 0.9f}) {
    Layer layer({.m = 65, .n = 1, .k = 130, .rank = 65, .dropout = probability}, Values::kNormal,
                random);
    layer.params = {.step = 123456, .seed = 0x123456789abcdef0u, .micro_step = 3};
    std::vector<float> identity(65 * 130);
    for (std::size_t r = 0; r < 65; ++r) identity[r * 130 + r * 2] = 1;
    layer.a = Guarded(identity, DType::kF32, {65, 130});
    const Op u = [&](const OpTable& t, ThreadPool& pool) -> Results {
      return {forward(t, layer, pool)[1]};
    };
    // One product for each element of u, which the host rounds once from double: the same bits.
    check_exact(u);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
