// Random layers: small integers for bit-exact comparisons, normal values for the rest.
#include "tests/kernels/nf4_layer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace reprise::test {
namespace {

template <class T>
T pick(Random& random, const std::vector<T>& from) {
  return from[static_cast<std::size_t>(
      random.between(0, static_cast<std::int64_t>(from.size()) - 1))];
}

// Integers in [-1, 1], of which about `filled` in a row of `length` are not zero.
std::vector<float> sparse_signs(Random& random, std::int64_t count, std::int64_t length,
                                double filled) {
  const double share = filled / static_cast<double>(length);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    const bool zero = random.uniform() >= share;
    value = zero ? 0.0f : random.uniform() < 0.5 ? -1.0f : 1.0f;
  }
  return values;
}

// Nibbles of -1, 0 and 1, whose products with whole scales are exact.
std::vector<std::uint8_t> whole_codes(Random& random, std::int64_t count) {
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(nf4_packed_bytes(count)));
  const std::vector<int> codes = {0, kNf4ZeroCode, 15};
  for (std::uint8_t& byte : packed) {
    byte = static_cast<std::uint8_t>(pick(random, codes) << 4 | pick(random, codes));
  }
  return packed;
}

}  // namespace

std::string to_string(const LayerCase& c) {
  return std::string(c.compute == ComputeType::kBF16 ? "bf16" : "fp32") +
         " m=" + std::to_string(c.m) + " n=" + std::to_string(c.n) + " k=" + std::to_string(c.k) +
         " rank=" + std::to_string(c.rank) + " dropout=" + std::to_string(c.dropout) +
         (c.mode == OutputMode::kAccumulate ? " accumulate " : " overwrite ") + name_of(c.in) +
         "->" + name_of(c.out) +
         (c.order == NibbleOrder::kHighFirst ? " high first" : " low first") +
         " block=" + std::to_string(c.block_size) + (c.bias ? " bias" : "");
}

LayerCase random_case(Random& random, Values values) {
  const std::vector<std::int64_t> sizes = {1, 15, 17, 63, 64, 65, 96, 192, 352, 576};
  const std::vector<std::int64_t> rows = {1, 2, 7, 8, 15, 17, 63, 65, 96};
  const std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  return {.compute = pick(random, std::vector{ComputeType::kF32, ComputeType::kBF16}),
          .m = pick(random, rows),
          .n = pick(random, sizes),
          .k = pick(random, sizes),
          .rank = pick(random, std::vector<std::int64_t>{0, 1, 4, 8, 16, 33, 65}),
          .dropout = random.uniform() < 0.5             ? 0.0f
                     : values == Values::kSmallIntegers ? 0.5f
                                                        : 0.1f,
          .mode = pick(random, std::vector{OutputMode::kOverwrite, OutputMode::kAccumulate}),
          .in = pick(random, dtypes),
          .out = pick(random, dtypes),
          .order = pick(random, std::vector{NibbleOrder::kHighFirst, NibbleOrder::kLowFirst}),
          .block_size = pick(random, std::vector<std::int64_t>{64, 128, 256, 4096}),
          .bias = random.uniform() < 0.5};
}

Layer::Layer(const LayerCase& layer_case, Values values, Random& random)
    : c(layer_case),
      packed(whole_codes(random, c.n * c.k)),
      absmax(static_cast<std::size_t>(nf4_blocks(c.n * c.k, c.block_size))),
      x(0),
      grad_y(0),
      a(0),
      b(0),
      u(0),
      grad_u(0),
      bias(0) {
  const bool whole = values == Values::kSmallIntegers;
  const std::int64_t rank = std::max<std::int64_t>(c.rank, 1);
  // A row of A and a column of B have about eight entries of one: u and grad_u stay far below 256,
  // the last integer up to which bf16 holds every one.
  const auto operand = [&](DType dtype, Dims dims, std::int64_t length, double filled) {
    return Guarded(whole ? sparse_signs(random, dims.count(), length, filled)
                         : normal_values(random, dims.count()),
                   dtype, dims);
  };
  x = operand(c.in, {c.m, c.k}, 3, 2);
  grad_y = operand(c.in, {c.m, c.n}, 3, 2);
  a = operand(DType::kF32, {rank, c.k}, c.k, 8);
  b = operand(DType::kF32, {c.n, rank}, c.n, 8);
  u = operand(DType::kF32, {c.m, rank}, 3, 2);
  grad_u = operand(DType::kF32, {c.m, rank}, 3, 2);
  bias = operand(DType::kF32, {c.n}, 3, 2);
  const std::int64_t largest = std::max({c.m, c.n, c.k, rank});
  initial = Guarded(operand(DType::kF32, {largest, largest}, 3, 2)).values();
  if (whole) {
    for (float& value : absmax) value = static_cast<float>(random.between(1, 5));
  } else {
    const std::vector<float> weights = normal_values(random, c.n * c.k, 0.05);
    quantize_nf4(weights.data(), c.n * c.k, c.block_size, c.order, packed.data(), absmax.data());
  }
}

Guarded Layer::output(DType dtype, Dims dims, OutputMode mode) const {
  if (mode == OutputMode::kOverwrite) return Guarded(dtype, dims);
  return Guarded({initial.begin(), initial.begin() + dims.count()}, dtype, dims);
}

const std::vector<Isa>& isas_under_test() {
  static const std::vector<Isa> present = [] {
    std::vector<Isa> isas;
    for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
      if (isa <= detect_isa()) {
        isas.push_back(isa);
      } else {
        std::printf("skipped: this machine has no %s\n", name_of(isa));
      }
    }
    return isas;
  }();
  return present;
}

double relative_error(const std::vector<float>& values, const std::vector<float>& expected) {
  BOOST_REQUIRE(values.size() == expected.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double d = static_cast<double>(values[i]) - expected[i];
    error += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

LayerResults linear_forward(const OpTable& table, const Layer& layer, ThreadPool& pool) {
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
  run_first(table.linear_nf4_forward, args, pool);
  BOOST_TEST(y.intact());
  BOOST_TEST(u.intact());
  if (c.rank == 0) return {y.values()};
  return {y.values(), u.values()};
}

LayerResults linear_backward(const OpTable& table, const Layer& layer, ThreadPool& pool) {
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
  run_first(table.linear_nf4_backward, args, pool);
  BOOST_TEST(grad_x.intact());
  return {grad_x.values()};
}

LayerResults adapter_gradients(const OpTable& table, const Layer& layer, ThreadPool& pool) {
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

}  // namespace reprise::test
