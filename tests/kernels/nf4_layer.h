// A frozen NF4 layer with its adapter and everything that its three ops read: shared by the tests
// of linear_nf4 and lora_backward.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/thread_pool.h"
#include "tests/kernels/guarded.h"
#include "tests/support/random.h"

namespace reprise::test {

struct LayerCase {
  ComputeType compute = ComputeType::kF32;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t rank = 0;  // 0: no adapter
  float dropout = 0;
  OutputMode mode = OutputMode::kOverwrite;
  DType in = DType::kF32;
  DType out = DType::kF32;
  NibbleOrder order = NibbleOrder::kHighFirst;
  std::int64_t block_size = 64;
  bool bias = false;
};
std::string to_string(const LayerCase& c);

// kSmallIntegers: every product, sum and rounding is exact in FP32 and in bf16 (scale and dropout
// factor being powers of two), so that all implementations must agree in every bit.
enum class Values { kSmallIntegers, kNormal };

// A case with sizes from the ragged list, an adapter or none, and every option drawn at random.
// The dropout is 1/2, whose factor is exact, for small integers.
LayerCase random_case(Random& random, Values values);

struct Layer {
  LayerCase c;
  float scale = 2;
  StepParams params{.step = 3, .seed = 11, .micro_step = 1};
  std::vector<std::uint8_t> packed;
  std::vector<float> absmax;
  Guarded x, grad_y, a, b, u, grad_u, bias;
  std::vector<float> initial;  // what outputs hold before, as many as the largest output

  Layer(const LayerCase& layer_case, Values values, Random& random);

  Nf4View weight() const { return {packed.data(), absmax.data(), c.n, c.k, c.block_size, c.order}; }
  Dropout dropout() const { return {.probability = c.dropout, .site = 5, .params = &params}; }
  // Poisoned, or with the initial values where the op accumulates.
  Guarded output(DType dtype, Dims dims, OutputMode mode) const;
};

// The instruction sets of this machine; prints those it lacks, once.
const std::vector<Isa>& isas_under_test();

// Runs the first implementation of a list on guarded and poisoned scratch of exactly the size that
// it asks for.
template <class Args>
void run_first(const Implementations<Args>& list, Args args, ThreadPool& pool) {
  const Implementation<Args>& first = list.at(0);
  const Support support = first.supports(args);
  BOOST_REQUIRE_MESSAGE(support.ok(), first.name << ": " << support.reason());
  const Guarded scratch(first.scratch_bytes == nullptr ? 0
                                                       : first.scratch_bytes(args, pool.threads()));
  args.scratch = scratch.scratch();
  first.run(args, {.pool = &pool});
  BOOST_TEST(scratch.intact(), first.name);
}

// What one op of a layer writes when a table runs it; guards are checked. linear_forward: y, and u
// with an adapter. linear_backward: grad_x. adapter_gradients: grad_u, grad_a, grad_b.
using LayerResults = std::vector<std::vector<float>>;
LayerResults linear_forward(const OpTable& table, const Layer& layer, ThreadPool& pool);
LayerResults linear_backward(const OpTable& table, const Layer& layer, ThreadPool& pool);
LayerResults adapter_gradients(const OpTable& table, const Layer& layer, ThreadPool& pool);

double relative_error(const std::vector<float>& values, const std::vector<float>& expected);

}  // namespace reprise::test
