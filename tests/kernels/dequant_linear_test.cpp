// The comparison path of the frozen linear layers (oneDNN on dequantised weights) against the
// reference, and dequant against cached.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/thread_pool.h"
#include "tests/kernels/guarded.h"
#include "tests/support/random.h"

namespace reprise::test {
namespace {

struct LinearCase {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t rank = 0;  // 0: no LoRA term
  float dropout = 0;
  OutputMode mode = OutputMode::kOverwrite;
  DType in = DType::kF32;
  DType out = DType::kF32;
  NibbleOrder order = NibbleOrder::kHighFirst;
  std::int64_t block_size = 64;
  bool bias = false;
};

// All inputs of a forward and a backward call.
struct LinearData {
  LinearCase shape;
  ComputeType compute;
  StepParams params{.step = 3, .seed = 11, .micro_step = 1};
  std::vector<std::uint8_t> packed;
  std::vector<float> absmax;
  std::vector<float> weight;  // dequantised, rounded to the compute type
  Guarded cached, input, a, b, grad_u, bias, initial;

  LinearData(const LinearCase& shape_of_case, ComputeType type, bool backward, Random& random);

  Nf4View nf4() const {
    return {packed.data(), absmax.data(), shape.n, shape.k, shape.block_size, shape.order};
  }
  Dropout dropout() const { return {.probability = shape.dropout, .site = 5, .params = &params}; }
};

Guarded random_operand(Random& random, DType dtype, Dims dims) {
  return Guarded(normal_values(random, dims.count()), dtype, dims);
}

LinearData::LinearData(const LinearCase& shape_of_case, ComputeType type, bool backward,
                       Random& random)
    : shape(shape_of_case),
      compute(type),
      packed(static_cast<std::size_t>(nf4_packed_bytes(shape.n * shape.k))),
      absmax(static_cast<std::size_t>(nf4_blocks(shape.n * shape.k, shape.block_size))),
      weight(static_cast<std::size_t>(shape.n * shape.k)),
      cached(activation_dtype(type), {shape.n, shape.k}),
      input(random_operand(random, shape.in, {shape.m, backward ? shape.n : shape.k})),
      a(random_operand(random, DType::kF32, {std::max<std::int64_t>(shape.rank, 1), shape.k})),
      b(random_operand(random, DType::kF32, {shape.n, std::max<std::int64_t>(shape.rank, 1)})),
      grad_u(random_operand(random, DType::kF32, {shape.m, std::max<std::int64_t>(shape.rank, 1)})),
      bias(random_operand(random, DType::kF32, {shape.n})),
      initial(random_operand(random, shape.out, {shape.m, backward ? shape.k : shape.n})) {
  const std::vector<float> values = normal_values(random, shape.n * shape.k, 0.05);
  quantize_nf4(values.data(), shape.n * shape.k, shape.block_size, shape.order, packed.data(),
               absmax.data());
  dequantize_nf4(nf4(), weight.data());
  cached = Guarded(weight, activation_dtype(type), {shape.n, shape.k});
  weight = cached.values();
}

LinearNf4ForwardArgs forward_args(const LinearData& data, const View& y, const View& u) {
  LinearNf4ForwardArgs args;
  args.compute = data.compute;
  args.x = data.input.view();
  args.weight = data.nf4();
  args.cached_weight = data.cached.view();
  if (data.shape.bias) args.bias = data.bias.view();
  if (data.shape.rank > 0) {
    args.lora = {
        .a = data.a.view(), .b = data.b.view(), .u = u, .scale = 1.7f, .dropout = data.dropout()};
  }
  args.y = y;
  args.mode = data.shape.mode;
  return args;
}

LinearNf4BackwardArgs backward_args(const LinearData& data, const View& grad_x) {
  LinearNf4BackwardArgs args;
  args.compute = data.compute;
  args.grad_y = data.input.view();
  args.weight = data.nf4();
  args.cached_weight = data.cached.view();
  if (data.shape.rank > 0) {
    args.lora = {.a = data.a.view(), .grad_u = data.grad_u.view(), .dropout = data.dropout()};
  }
  args.grad_x = grad_x;
  args.mode = data.shape.mode;
  return args;
}

// Runs an op on guarded scratch of exactly the size it asks for.
template <class Args>
void run(const Implementation<Args>& implementation, Args args, ThreadPool& pool) {
  const Support support = implementation.supports(args);
  BOOST_REQUIRE_MESSAGE(support.ok(), implementation.name << ": " << support.reason());
  const Guarded scratch(implementation.scratch_bytes == nullptr
                            ? 0
                            : implementation.scratch_bytes(args, pool.threads()));
  args.scratch = scratch.scratch();
  implementation.run(args, {.pool = &pool});
  BOOST_TEST(scratch.intact());
}

Guarded starting_output(const LinearData& data, const Dims& dims) {
  if (data.shape.mode == OutputMode::kOverwrite) return Guarded(data.shape.out, dims);
  return Guarded(data.initial.values(), data.shape.out, dims);
}

struct Outputs {
  std::vector<float> result;
  std::vector<float> u;
};

Outputs run_forward(const OpTable& table, const LinearData& data, ThreadPool& pool) {
  const Guarded y = starting_output(data, {data.shape.m, data.shape.n});
  const Guarded u(DType::kF32, {data.shape.m, std::max<std::int64_t>(data.shape.rank, 1)});
  run(table.linear_nf4_forward.at(0), forward_args(data, y.view(), u.view()), pool);
  BOOST_TEST(y.intact());
  BOOST_TEST(u.intact());
  return {y.values(), data.shape.rank > 0 ? u.values() : std::vector<float>()};
}

Outputs run_backward(const OpTable& table, const LinearData& data, ThreadPool& pool) {
  const Guarded grad_x = starting_output(data, {data.shape.m, data.shape.k});
  run(table.linear_nf4_backward.at(0), backward_args(data, grad_x.view()), pool);
  BOOST_TEST(grad_x.intact());
  return {grad_x.values(), {}};
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

double difference(const std::vector<float>& values, const std::vector<float>& expected) {
  BOOST_REQUIRE(values.size() == expected.size());
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double d = static_cast<double>(values[i]) - expected[i];
    sum += d * d;
  }
  return std::sqrt(sum);
}

// What differs from the reference: the order of FP32 sums (a few 2^-24 of the norm: the errors of
// different elements are independent); the rounding of a bf16 result; and in bf16 compute the
// rounding of the adapter's operands, which the reference does not round: dropout(x), A, u, B, or
// grad_u and A. A rounding moves an element by at most 2^-8 of itself, by 0.42 * 2^-8 in the root
// mean square; five independent ones stay below 1.5 * 2^-8.
constexpr double kSumError = 0x1p-19;
constexpr double kRoundingError = 1.5 * 0x1p-8;

double tolerance(const LinearData& data) {
  const bool rounds =
      data.shape.out == DType::kBF16 || (data.compute == ComputeType::kBF16 && data.shape.rank > 0);
  return rounds ? kRoundingError : kSumError;
}

void check_close(const Outputs& outputs, const Outputs& expected, const LinearData& data,
                 const std::string& what) {
  const double error = difference(outputs.result, expected.result) / norm(expected.result);
  BOOST_TEST(error <= tolerance(data), what << " m=" << data.shape.m << " n=" << data.shape.n
                                            << " k=" << data.shape.k << " rank=" << data.shape.rank
                                            << ": relative error " << error << " above "
                                            << tolerance(data));
  if (!expected.u.empty()) {
    const double bound = data.compute == ComputeType::kBF16 ? kRoundingError : kSumError;
    BOOST_TEST(difference(outputs.u, expected.u) / norm(expected.u) <= bound);
  }
}

bool usable(const LinearData& data, bool backward) {
  const OpTable table = cpu_ops(Isa::kGeneric, LinearMode::kDequant);
  const View none = {
      nullptr, data.shape.out, {data.shape.m, backward ? data.shape.k : data.shape.n}};
  const View u = {nullptr, DType::kF32, {data.shape.m, data.shape.rank}};
  const Support support =
      backward ? table.linear_nf4_backward.at(0).supports(backward_args(data, none))
               : table.linear_nf4_forward.at(0).supports(forward_args(data, none, u));
  if (!support.ok()) std::printf("skipped: %s\n", support.reason().c_str());
  return support.ok();
}

void compare(const LinearCase& shape, ComputeType compute, bool backward, Random& random) {
  const LinearData data(shape, compute, backward, random);
  if (!usable(data, backward)) return;
  ThreadPool two(2);
  ThreadPool one(1);
  const auto run_mode = [&](const OpTable& table, ThreadPool& pool) {
    return backward ? run_backward(table, data, pool) : run_forward(table, data, pool);
  };
  const Outputs expected = run_mode(reference_ops(), one);
  const Isa isa = detect_isa();
  const Outputs dequant = run_mode(cpu_ops(isa, LinearMode::kDequant), two);
  check_close(dequant, expected, data, "dequant");
  const Outputs again = run_mode(cpu_ops(Isa::kGeneric, LinearMode::kDequant), two);
  BOOST_TEST(again.result == dequant.result);  // the conversions are the same bits in every set
  const Outputs cached = run_mode(cpu_ops(isa, LinearMode::kCached), two);
  BOOST_TEST(cached.result == dequant.result);
  const Outputs fused = run_mode(cpu_ops(isa, LinearMode::kFused), two);
  check_close(fused, dequant, data, "fused against dequant");
}

const std::vector<LinearCase> kCases = {
    {.m = 1, .n = 64, .k = 64},
    {.m = 15, .n = 96, .k = 192, .rank = 4, .bias = true},
    {.m = 17, .n = 33, .k = 96, .rank = 16, .order = NibbleOrder::kLowFirst},  // straddles rows
    {.m = 63, .n = 65, .k = 352, .rank = 8, .mode = OutputMode::kAccumulate, .bias = true},
    {.m = 65, .n = 192, .k = 576, .rank = 16, .dropout = 0.25f},
    {.m = 17, .n = 128, .k = 256, .mode = OutputMode::kAccumulate, .block_size = 128},
    {.m = 33, .n = 7, .k = 95, .rank = 3, .dropout = 0.5f, .mode = OutputMode::kAccumulate},
};

void compare_all(ComputeType compute, bool backward) {
  Random random(test_seed(20261201));
  for (LinearCase shape : kCases) {
    for (const DType in : {DType::kF32, DType::kBF16}) {
      for (const DType out : {DType::kF32, DType::kBF16}) {
        // Neither the library nor any step has an fp32 product with a bf16 result.
        if (compute == ComputeType::kF32 && out == DType::kBF16) continue;
        shape.in = in;
        shape.out = out;
        compare(shape, compute, backward, random);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE(dequant_linear)

BOOST_AUTO_TEST_CASE(forward_fp32) { compare_all(ComputeType::kF32, false); }
BOOST_AUTO_TEST_CASE(forward_bf16) { compare_all(ComputeType::kBF16, false); }
BOOST_AUTO_TEST_CASE(backward_fp32) { compare_all(ComputeType::kF32, true); }
BOOST_AUTO_TEST_CASE(backward_bf16) { compare_all(ComputeType::kBF16, true); }

BOOST_AUTO_TEST_CASE(cached_without_a_cached_weight_is_refused) {
  Random random(1);
  const LinearData data({.m = 4, .n = 64, .k = 64}, ComputeType::kF32, false, random);
  const View y = {nullptr, DType::kF32, {4, 64}};
  LinearNf4ForwardArgs args = forward_args(data, y, y);
  args.cached_weight = {};
  const OpTable table = cpu_ops(Isa::kGeneric, LinearMode::kCached);
  BOOST_TEST(!table.linear_nf4_forward.at(0).supports(args).ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
