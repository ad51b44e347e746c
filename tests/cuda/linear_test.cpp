// The frozen layer and its adapter on the device, forward and backward, against the reference.
#include <algorithm>
#include <array>

#include "tests/cuda/on_device.h"
#include "tests/kernels/nf4_layer.h"

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

using Pass = LayerResults (*)(const OpTable&, const Layer&, ThreadPool&);

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
  for (const LayerCase& c : ragged_cases(random)) check_pass(linear_forward, c, random);
}

BOOST_AUTO_TEST_CASE(backward_of_ragged_shapes) {
  Random random(test_seed(302));
  for (const LayerCase& c : ragged_cases(random)) check_pass(linear_backward, c, random);
}

BOOST_AUTO_TEST_CASE(adapter_of_ragged_shapes) {
  Random random(test_seed(303));
  for (LayerCase c : ragged_cases(random)) {
    if (c.rank == 0) c.rank = 4;
    c.out = DType::kF32;
    check_pass(adapter_gradients, c, random);
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
      check_exact(
          [&](const OpTable& t, ThreadPool& pool) { return linear_forward(t, layer, pool); });
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
      return {linear_forward(t, layer, pool)[1]};
    };
    // One product for each element of u, which the host rounds once from double: the same bits.
    check_exact(u);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
