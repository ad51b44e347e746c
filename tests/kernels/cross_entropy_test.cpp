// The vocabulary head with its loss, and the plain head, of every instruction set against the
// reference.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/thread_pool.h"
#include "tests/kernels/guarded.h"
#include "tests/support/random.h"

namespace reprise::test {
namespace {

enum class Labels { kSome, kAll, kNone, kOne };  // which rows have one

struct HeadCase {
  std::int64_t m = 0;
  std::int64_t v = 0;
  std::int64_t c = 0;
  Labels labels = Labels::kSome;
  double logit_scale = 1;
  DType x = DType::kF32;
  DType weight = DType::kF32;
};

struct HeadData {
  HeadCase shape;
  Guarded x, weight;
  std::vector<std::int32_t> labels;
  StepParams params{.micro_step = 1};

  HeadData(const HeadCase& head, Random& random)
      : shape(head),
        x(normal_values(random, head.m * head.c, head.logit_scale), head.x, {head.m, head.c}),
        weight(normal_values(random, head.v * head.c, 1 / std::sqrt(static_cast<double>(head.c))),
               head.weight, {head.v, head.c}),
        labels(static_cast<std::size_t>(head.m), kIgnoredLabel) {
    const std::int64_t chosen = random.between(0, head.m - 1);
    std::int64_t valid = 0;
    for (std::int64_t row = 0; row < head.m; ++row) {
      const bool has_label = head.labels == Labels::kAll ||
                             (head.labels == Labels::kSome && random.uniform() < 0.6) ||
                             (head.labels == Labels::kOne && row == chosen);
      const auto label = static_cast<std::int32_t>(random.between(0, head.v - 1));
      if (!has_label) continue;
      labels[static_cast<std::size_t>(row)] = label;
      ++valid;
    }
    params.loss_scale = valid == 0 ? 0.0f : 1.0f / static_cast<float>(valid);
  }
};

struct HeadResult {
  std::vector<float> loss, nll, grad_x;
};

enum class Wanted { kGradient, kLossOnly };

HeadResult run_head(const OpTable& table, const HeadData& data, ComputeType compute,
                    ThreadPool& pool, Wanted wanted = Wanted::kGradient) {
  const Guarded loss(std::vector<float>{5, 6, 7}, DType::kF32, {3});
  const Guarded nll(DType::kF32, {data.shape.m});
  const Guarded grad_x(DType::kF32, {data.shape.m, data.shape.c});
  CrossEntropyArgs args;
  args.compute = compute;
  args.x = data.x.view();
  args.weight = data.weight.view();
  args.labels = {data.labels.data(), DType::kI32, {data.shape.m}};
  args.params = &data.params;
  args.loss = loss.view();
  if (wanted == Wanted::kGradient) {
    args.nll = nll.view();
    args.grad_x = grad_x.view();
  }
  const Implementation<CrossEntropyArgs>& implementation =
      select(table.cross_entropy, args, "cross_entropy");
  const Guarded scratch(implementation.scratch_bytes == nullptr
                            ? 0
                            : implementation.scratch_bytes(args, pool.threads()));
  args.scratch = scratch.scratch();
  implementation.run(args, {.pool = &pool});
  BOOST_TEST((loss.intact() && nll.intact() && grad_x.intact() && scratch.intact()));
  BOOST_TEST(loss.values()[0] == 5.0f);  // only the element of this micro-step is written
  BOOST_TEST(loss.values()[2] == 7.0f);
  return {loss.values(), nll.values(), grad_x.values()};
}

double largest_logit(const OpTable& reference, const HeadData& data, ComputeType compute,
                     ThreadPool& pool) {
  const Guarded logits(DType::kF32, {data.shape.m, data.shape.v});
  LmHeadArgs args;
  args.compute = compute;
  args.x = data.x.view();
  args.weight = data.weight.view();
  args.logits = logits.view();
  reference.lm_head.back().run(args, {.pool = &pool});
  double largest = 0;
  for (const float logit : logits.values()) {
    largest = std::max(largest, static_cast<double>(std::abs(logit)));
  }
  return largest;
}

// An FP32 sum of C <= 576 products rounds C times, by at most 2^-25 of what it has reached, which
// is of the order of the logit; independent roundings add up to sqrt(576) * 2^-25 < 2^-20. The loss
// moves by no more than its logits.
double logit_error(double largest) { return 0x1p-20 * (1 + largest); }

void check_nll(const HeadResult& result, const HeadResult& expected, double largest,
               const std::string& what) {
  for (std::size_t row = 0; row < expected.nll.size(); ++row) {
    BOOST_TEST(std::abs(result.nll[row] - expected.nll[row]) <= logit_error(largest),
               what << " nll of row " << row << ": " << result.nll[row] << ", expected "
                    << expected.nll[row]);
  }
  BOOST_TEST(std::abs(result.loss[1] - expected.loss[1]) <= logit_error(largest),
             what << " loss " << result.loss[1] << ", expected " << expected.loss[1]);
}

// Row by row: an error e of a logit moves the softmax by at most 2e in the sum of its absolute
// values; in bf16 compute its elements, whose absolute sum is at most 2, are rounded as well
// (half a unit in the last place: 2^-8 of each). Both reach the gradient through rows of the
// weight.
void check_gradient(const HeadResult& result, const HeadResult& expected, const HeadData& data,
                    ComputeType compute, double largest, const std::string& what) {
  const std::vector<float> weight = data.weight.values();
  const auto columns = static_cast<std::size_t>(data.shape.c);
  const auto row_norm = [&](const std::vector<float>& a, const std::vector<float>* b,
                            std::size_t row) {
    double sum = 0;
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
      const double d = static_cast<double>(a[i]) - (b == nullptr ? 0.0f : (*b)[i]);
      sum += d * d;
    }
    return std::sqrt(sum);
  };
  double weight_norm = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(data.shape.v); ++row) {
    weight_norm = std::max(weight_norm, row_norm(weight, nullptr, row));
  }
  const double rounding = compute == ComputeType::kBF16 ? 0x1p-7 : 0;
  const double bound = data.params.loss_scale * weight_norm * (2 * logit_error(largest) + rounding);
  for (std::size_t row = 0; row < data.labels.size(); ++row) {
    const double error = row_norm(result.grad_x, &expected.grad_x, row);
    BOOST_TEST(error <= bound,
               what << " gradient of row " << row << ": off by " << error << ", bound " << bound);
    if (data.labels[row] == kIgnoredLabel) {
      BOOST_TEST(row_norm(result.grad_x, nullptr, row) == 0.0);
      BOOST_TEST(result.nll[row] == 0.0f);
    }
  }
}

std::vector<Isa> instruction_sets() {
  std::vector<Isa> sets;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (isa <= detect_isa()) sets.push_back(isa);
  }
  return sets;
}

void compare(const HeadCase& shape, Random& random) {
  const HeadData data(shape, random);
  ThreadPool one(1);
  ThreadPool two(2);
  ThreadPool three(3);
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    const OpTable reference = reference_ops();
    const HeadResult expected = run_head(reference, data, compute, one);
    const double largest = largest_logit(reference, data, compute, one);
    for (const Isa isa : instruction_sets()) {
      const std::string what = std::string(name_of(isa)) + " " + name_of(compute) +
                               " m=" + std::to_string(shape.m) + " v=" + std::to_string(shape.v) +
                               " c=" + std::to_string(shape.c);
      const OpTable table = cpu_ops(isa, LinearMode::kFused);
      const HeadResult result = run_head(table, data, compute, two);
      check_nll(result, expected, largest, what);
      check_gradient(result, expected, data, compute, largest, what);
      for (ThreadPool* pool : {&one, &two, &three}) {
        const HeadResult again = run_head(table, data, compute, *pool);
        BOOST_TEST((again.loss == result.loss && again.grad_x == result.grad_x), what);
      }
      const HeadResult loss_only = run_head(table, data, compute, two, Wanted::kLossOnly);
      BOOST_TEST(loss_only.loss == result.loss, what);
    }
  }
}

BOOST_AUTO_TEST_SUITE(cross_entropy)

BOOST_AUTO_TEST_CASE(ragged_shapes) {
  Random random(test_seed(11));
  for (const HeadCase& shape : std::vector<HeadCase>{{.m = 1, .v = 17, .c = 64},
                                                     {.m = 15, .v = 65, .c = 192},
                                                     {.m = 17, .v = 1, .c = 64},
                                                     {.m = 63, .v = 1000, .c = 96},
                                                     {.m = 17, .v = 320, .c = 576},
                                                     {.m = 9, .v = 4099, .c = 64},
                                                     {.m = 300, .v = 257, .c = 64}}) {
    compare(shape, random);
  }
}

BOOST_AUTO_TEST_CASE(operand_types) {
  Random random(test_seed(12));
  for (const DType x : {DType::kF32, DType::kBF16}) {
    for (const DType weight : {DType::kF32, DType::kBF16}) {
      compare({.m = 17, .v = 321, .c = 96, .x = x, .weight = weight}, random);
    }
  }
}

BOOST_AUTO_TEST_CASE(masks) {
  Random random(test_seed(13));
  for (const Labels labels : {Labels::kAll, Labels::kNone, Labels::kOne}) {
    compare({.m = 33, .v = 320, .c = 64, .labels = labels}, random);
  }
}

BOOST_AUTO_TEST_CASE(huge_logits_do_not_overflow) {
  Random random(test_seed(14));
  compare({.m = 17, .v = 700, .c = 64, .labels = Labels::kAll, .logit_scale = 3000}, random);
}

BOOST_AUTO_TEST_CASE(a_certain_prediction_has_a_small_gradient_not_none) {
  // Two words, logits 12 and 0: softmax - onehot is about 6e-6, which a bf16 softmax (1 - 2^-9 is
  // its next value below 1) would lose.
  HeadCase shape{.m = 1, .v = 2, .c = 64, .labels = Labels::kAll};
  Random random(1);
  HeadData data(shape, random);
  std::vector<float> x(64);
  std::vector<float> weight(128);
  x[0] = 1;
  weight[0] = 12;
  data.x = Guarded(x, DType::kF32, {1, 64});
  data.weight = Guarded(weight, DType::kF32, {2, 64});
  data.labels = {0};
  data.params.loss_scale = 1;
  ThreadPool pool(1);
  const double expected = 12 * (1 / (1 + std::exp(-12.0)) - 1);
  for (const Isa isa : instruction_sets()) {
    for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
      const HeadResult result = run_head(cpu_ops(isa, LinearMode::kFused), data, compute, pool);
      BOOST_TEST(std::abs(result.grad_x[0] - expected) <= 0x1p-8 * std::abs(expected),
                 name_of(isa) << " " << result.grad_x[0] << ", expected " << expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(lm_head_writes_all_logits) {
  Random random(test_seed(15));
  ThreadPool one(1);
  ThreadPool two(2);
  for (const HeadCase& shape : std::vector<HeadCase>{{.m = 1, .v = 1000, .c = 576},
                                                     {.m = 17, .v = 321, .c = 96},
                                                     {.m = 65, .v = 17, .c = 64}}) {
    const HeadData data(shape, random);
    for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
      const auto run = [&](const OpTable& table, ThreadPool& pool) {
        const Guarded logits(DType::kF32, {shape.m, shape.v});
        LmHeadArgs args;
        args.compute = compute;
        args.x = data.x.view();
        args.weight = data.weight.view();
        args.logits = logits.view();
        const Implementation<LmHeadArgs>& head = select(table.lm_head, args, "lm_head");
        const Guarded scratch(
            head.scratch_bytes == nullptr ? 0 : head.scratch_bytes(args, pool.threads()));
        args.scratch = scratch.scratch();
        head.run(args, {.pool = &pool});
        BOOST_TEST((logits.intact() && scratch.intact()));
        return logits.values();
      };
      const std::vector<float> expected = run(reference_ops(), one);
      for (const Isa isa : instruction_sets()) {
        const std::vector<float> logits = run(cpu_ops(isa, LinearMode::kFused), two);
        for (std::size_t i = 0; i < logits.size(); ++i) {
          BOOST_REQUIRE(std::abs(logits[i] - expected[i]) <= logit_error(4));  // N(0, 1): below 5
        }
        BOOST_TEST(logits == run(cpu_ops(isa, LinearMode::kFused), one));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
