// The adapter's gradients in every instruction set against the reference.
#include "tests/kernels/nf4_layer.h"

namespace reprise::test {
namespace {

struct Gradients {
  std::vector<float> u, a, b;
  bool operator==(const Gradients&) const = default;
};

Gradients gradients(const OpTable& table, const Layer& layer, ThreadPool& pool) {
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
  run_first(table.lora_backward, args, pool);
  BOOST_TEST(grad_u.intact());
  BOOST_TEST(grad_a.intact());
  BOOST_TEST(grad_b.intact());
  return {grad_u.values(), grad_a.values(), grad_b.values()};
}

LayerCase adapter_case(Random& random, Values values) {
  LayerCase c = random_case(random, values);
  if (c.rank == 0) c.rank = 16;
  return c;
}

void check_exact(const LayerCase& c, Random& random) {
  const Layer layer(c, Values::kSmallIntegers, random);
  ThreadPool one(1), two(2);
  const Gradients expected = gradients(reference_ops(), layer, one);
  for (const Isa isa : isas_under_test()) {
    const OpTable table = cpu_ops(isa, LinearMode::kFused);
    BOOST_TEST((gradients(table, layer, one) == expected), name_of(isa) << " " << to_string(c));
    BOOST_TEST((gradients(table, layer, two) == expected), name_of(isa) << " " << to_string(c));
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
    const Gradients expected = gradients(reference_ops(), layer, one);
    const double bound = c.compute == ComputeType::kBF16 ? 1.5 * 0x1p-8 : 0x1p-18;
    for (const Isa isa : isas_under_test()) {
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      const Gradients grad = gradients(table, layer, two);
      const std::string what = std::string(name_of(isa)) + " " + to_string(c);
      BOOST_TEST(relative_error(grad.u, expected.u) <= bound, what);
      BOOST_TEST(relative_error(grad.a, expected.a) <= bound, what);
      BOOST_TEST(relative_error(grad.b, expected.b) <= bound, what);
      BOOST_TEST((gradients(table, layer, two) == grad), what);
      BOOST_TEST((gradients(table, layer, one) == grad), what);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
