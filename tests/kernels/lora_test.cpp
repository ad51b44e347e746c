// The adapter's gradients in every instruction set against the reference.
#include "tests/kernels/nf4_layer.h"

namespace reprise::test {
namespace {

LayerCase adapter_case(Random& random, Values values) {
  LayerCase c = random_case(random, values);
  if (c.rank == 0) c.rank = 16;
  return c;
}

void check_exact(const LayerCase& c, Random& random) {
  const Layer layer(c, Values::kSmallIntegers, random);
  ThreadPool one(1), two(2);
  const LayerResults expected = adapter_gradients(reference_ops(), layer, one);
  for (const Isa isa : isas_under_test()) {
    const OpTable table = cpu_ops(isa, LinearMode::kFused);
    BOOST_TEST((adapter_gradients(table, layer, one) == expected), name_of(isa)
                                                                       << " " << to_string(c));
    BOOST_TEST((adapter_gradients(table, layer, two) == expected), name_of(isa)
                                                                       << " " << to_string(c));
  }
}

BOOST_AUTO_TEST_SUITE(lora)

BOOST_AUTO_TEST_CASE(whole_numbers_are_exact) {
  Random random(test_seed(111));
  for (int i = 0; i < 24; ++i) check_exact(adapter_case(random, Values::kSmallIntegers), random);
  // More tokens than a panel has steps and a tile has rows.
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    check_exact({.compute = compute, .m = 515, .n = 65, .k = 66, .rank = 3}, random);
  }
}

// FP32 sums of up to 576 terms in another order stay within 2^-18 in the norm. bf16 compute rounds
// what the reference does not, dropout(x) and one matrix in each product; grad_a also sees grad_u,
// which already differs: four roundings of 0.42 * 2^-8 in the root mean square.
BOOST_AUTO_TEST_CASE(random_values_are_close) {
  Random random(test_seed(112));
  ThreadPool one(1), two(2);
  for (int i = 0; i < 24; ++i) {
    const LayerCase c = adapter_case(random, Values::kNormal);
    const Layer layer(c, Values::kNormal, random);
    const LayerResults expected = adapter_gradients(reference_ops(), layer, one);
    const double bound = c.compute == ComputeType::kBF16 ? 1.5 * 0x1p-8 : 0x1p-18;
    for (const Isa isa : isas_under_test()) {
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      const LayerResults grad = adapter_gradients(table, layer, two);
      const std::string what = std::string(name_of(isa)) + " " + to_string(c);
      BOOST_TEST(relative_error(grad[0], expected[0]) <= bound, what);
      BOOST_TEST(relative_error(grad[1], expected[1]) <= bound, what);
      BOOST_TEST(relative_error(grad[2], expected[2]) <= bound, what);
      BOOST_TEST((adapter_gradients(table, layer, two) == grad), what);
      BOOST_TEST((adapter_gradients(table, layer, one) == grad), what);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
