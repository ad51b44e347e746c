// The fused frozen layer of every instruction set, forward and backward, against the reference.
#include <algorithm>

#include "tests/kernels/nf4_layer.h"

namespace reprise::test {
namespace {

using Pass = LayerResults (*)(const OpTable&, const Layer&, ThreadPool&);

// Nothing rounds, so every instruction set and every number of threads gives the reference's bits.
void check_exact(const LayerCase& c, Pass pass, Random& random) {
  const Layer layer(c, Values::kSmallIntegers, random);
  ThreadPool one(1), two(2);
  const LayerResults expected = pass(reference_ops(), layer, one);
  for (const Isa isa : isas_under_test()) {
    const OpTable table = cpu_ops(isa, LinearMode::kFused);
    BOOST_TEST((pass(table, layer, one) == expected), name_of(isa) << " " << to_string(c));
    BOOST_TEST((pass(table, layer, two) == expected), name_of(isa) << " " << to_string(c));
  }
}

void check_random_exact(Pass pass, std::uint64_t seed) {
  Random random(test_seed(seed));
  for (int i = 0; i < 24; ++i) {
    check_exact(random_case(random, Values::kSmallIntegers), pass, random);
  }
}

// What differs from the reference. FP32 sums of up to 576 + 65 terms in another order: their errors
// are independent, so in the norm a few 2^-24 times the root of the number of terms, and no more
// than 2^-18. Roundings to bf16, each at most 2^-8 of an element and 0.42 * 2^-8 in the root mean
// square: the result, and in bf16 compute five of the adapter's operands that the reference keeps
// in FP32, dropout(x), A, scale * u, B, and grad_u; together below 1.5 * 2^-8.
double tolerance(const LayerCase& c) {
  const bool rounds = c.out == DType::kBF16 || (c.compute == ComputeType::kBF16 && c.rank > 0);
  return rounds ? 1.5 * 0x1p-8 : 0x1p-18;
}

void check_close(const LayerCase& c, Pass pass, Random& random) {
  const Layer layer(c, Values::kNormal, random);
  ThreadPool one(1), two(2);
  const LayerResults expected = pass(reference_ops(), layer, one);
  for (const Isa isa : isas_under_test()) {
    const OpTable table = cpu_ops(isa, LinearMode::kFused);
    const LayerResults results = pass(table, layer, two);
    const std::string what = std::string(name_of(isa)) + " " + to_string(c);
    BOOST_TEST(relative_error(results[0], expected[0]) <= tolerance(c), what);
    if (expected.size() > 1) {
      const double bound = c.compute == ComputeType::kBF16 ? 1.5 * 0x1p-8 : 0x1p-18;
      BOOST_TEST(relative_error(results[1], expected[1]) <= bound, what);
    }
    BOOST_TEST((pass(table, layer, two) == results), what);  // the same bits again
    BOOST_TEST((pass(table, layer, one) == results), what);  // whoever computes them
  }
}

void check_random_close(Pass pass, std::uint64_t seed) {
  Random random(test_seed(seed));
  for (int i = 0; i < 24; ++i) check_close(random_case(random, Values::kNormal), pass, random);
}

BOOST_AUTO_TEST_SUITE(linear_nf4)

BOOST_AUTO_TEST_CASE(forward_of_whole_numbers_is_exact) { check_random_exact(linear_forward, 101); }
BOOST_AUTO_TEST_CASE(backward_of_whole_numbers_is_exact) {
  check_random_exact(linear_backward, 102);
}
BOOST_AUTO_TEST_CASE(forward_is_close) { check_random_close(linear_forward, 103); }
BOOST_AUTO_TEST_CASE(backward_is_close) { check_random_close(linear_backward, 104); }

// One row and one column more than a tile has, so that every border of the blocking is crossed:
// 512 rows, 64 columns, 256 or 512 steps.
BOOST_AUTO_TEST_CASE(borders_of_tiles) {
  Random random(test_seed(105));
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    const LayerCase c = {.compute = compute, .m = 513, .n = 65, .k = 520, .rank = 2};
    check_exact(c, linear_forward, random);
    check_exact({.compute = compute, .m = 513, .n = 515, .k = 66, .rank = 2}, linear_backward,
                random);
  }
}

// Each of the sixteen codes under its own scale in both nibbles: x is a unit vector, so the result
// is the decoded weight itself.
void check_decoded_weight(const LayerCase& c, Random& random) {
  const std::int64_t k = c.k;
  Layer layer(c, Values::kNormal, random);
  for (std::uint8_t& byte : layer.packed) byte = static_cast<std::uint8_t>(random.bits());
  std::vector<float> identity(static_cast<std::size_t>(k * k));
  for (std::int64_t i = 0; i < k; ++i) identity[static_cast<std::size_t>(i * k + i)] = 1;
  layer.x = Guarded(identity, DType::kF32, {k, k});
  std::vector<float> weight(static_cast<std::size_t>(c.n * k));
  dequantize_nf4(layer.weight(), weight.data());
  weight = Guarded(weight, activation_dtype(c.compute), {c.n, k}).values();
  ThreadPool pool(2);
  for (const Isa isa : isas_under_test()) {
    const std::vector<float> y = linear_forward(cpu_ops(isa, LinearMode::kFused), layer, pool)[0];
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < c.n * k; ++i) {
      const auto transposed = static_cast<std::size_t>(i % k * c.n + i / k);
      wrong += y[transposed] != weight[static_cast<std::size_t>(i)];
    }
    BOOST_TEST(wrong == 0, name_of(isa) << " " << to_string(c));
  }
}

BOOST_AUTO_TEST_CASE(each_weight_is_rounded_once) {
  Random random(test_seed(106));
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    for (const NibbleOrder order : {NibbleOrder::kHighFirst, NibbleOrder::kLowFirst}) {
      for (const std::int64_t k : {64, 72, 95, 96}) {
        check_decoded_weight({.compute = compute, .m = k, .n = 32, .k = k, .order = order}, random);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
