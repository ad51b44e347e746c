// Embedding, rotary embedding, SwiGLU, residual and fill of every instruction set against the
// reference, in place where that is allowed.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/kernels/run_op.h"

namespace reprise::test {
namespace {

using Outputs = std::vector<std::vector<float>>;
using Op = std::function<Outputs(const OpTable&, ThreadPool&)>;

// Each element within `relative` of the reference, or within `absolute` if that is more; the same
// bits for one thread and for three.
struct Bound {
  double relative = 0, absolute = 0;
};

void check_op(const Op& op, const Bound& bound) {
  ThreadPool one(1), three(3);
  const Outputs expected = op(reference_ops(), one);
  for (const Isa isa : isas_under_test()) {
    const OpTable table = cpu_ops(isa, LinearMode::kFused);
    const Outputs outputs = op(table, one);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < outputs[o].size(); ++i) {
        const double want = expected[o][i];
        const double allowed = std::max(bound.relative * std::abs(want), bound.absolute);
        wrong += !(std::abs(outputs[o][i] - want) <= allowed);
      }
      BOOST_TEST(wrong == 0, name_of(isa) << " output " << o << ": " << wrong << " of "
                                          << outputs[o].size() << " elements");
    }
    BOOST_TEST((op(table, three) == outputs), name_of(isa));
  }
}

// A bf16 result may be the neighbour of the reference's, 2^-7 of it away.
Bound rounded(DType dtype, Bound fp32) {
  return dtype == DType::kBF16 ? Bound{0x1p-7, fp32.absolute} : fp32;
}

// 4097 crosses the border between two workers' ranges.
constexpr std::int64_t kWidths[] = {1, 15, 16, 17, 63, 65, 4097};

BOOST_AUTO_TEST_SUITE(pointwise)

BOOST_AUTO_TEST_CASE(embedding_copies_rows) {
  Random random(test_seed(141));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t c : {1, 15, 17, 65}) {
      constexpr std::int64_t kVocab = 11;
      const Guarded table_rows(normal_values(random, kVocab * c), dtype, {kVocab, c});
      std::vector<std::int32_t> ids = {0, kVocab - 1, 3, 3};
      while (ids.size() < 37)
        ids.push_back(static_cast<std::int32_t>(random.between(0, kVocab - 1)));
      const auto m = static_cast<std::int64_t>(ids.size());
      const auto op = [&](const OpTable& table, ThreadPool& pool) {
        const Guarded y(DType::kF32, {m, c});
        run_op(
            table.embedding_forward,
            EmbeddingForwardArgs{
                .ids = {ids.data(), DType::kI32, {m}}, .table = table_rows.view(), .y = y.view()},
            pool);
        BOOST_TEST(y.intact());
        return Outputs{y.values()};
      };
      check_op(op, {});
    }
  }
}

void check_rope(DType dtype, RopeDirection direction, std::int64_t half, Random& random) {
  constexpr std::int64_t kSeq = 5, kHeads = 3, kRows = 4 * kSeq;
  std::vector<float> angles;
  for (std::int64_t i = 0; i < kSeq * half; ++i) {
    const double angle = random.uniform() * 7;
    angles.push_back(static_cast<float>(std::cos(angle)));
    angles.push_back(static_cast<float>(std::sin(angle)));
  }
  const Guarded cos_sin(angles, DType::kF32, {kSeq, half, 2});
  const Dims dims = {kRows, kHeads * 2 * half};
  const std::vector<float> values = normal_values(random, dims.count());
  for (const bool in_place : {false, true}) {
    const auto op = [&](const OpTable& table, ThreadPool& pool) {
      const Guarded x(values, dtype, dims), other(dtype, dims);
      const Guarded& y = in_place ? x : other;
      run_op(table.rope,
             RopeArgs{.x = x.view(),
                      .table = cos_sin.view(),
                      .heads = kHeads,
                      .direction = direction,
                      .y = y.view()},
             pool);
      BOOST_TEST(x.intact());
      BOOST_TEST(y.intact());
      return Outputs{y.values()};
    };
    // Two products of at most 6 each, that may cancel: three roundings of 2^-24 of 6.
    check_op(op, rounded(dtype, {0, 18 * 0x1p-24}));
  }
}

BOOST_AUTO_TEST_CASE(rope_turns_pairs_of_halves) {
  Random random(test_seed(142));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kInverse}) {
      for (const std::int64_t half : {1, 15, 16, 17, 40, 64}) {
        check_rope(dtype, direction, half, random);
      }
    }
  }
}

// Gates from where the sigmoid vanishes to where it is 1, and normal ones.
std::vector<float> gates(Random& random, std::int64_t count) {
  std::vector<float> values = normal_values(random, count);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    values[i] = static_cast<float>(random.uniform() * 240 - 120);
  }
  return values;
}

// exp is within 2e-7, which is 3.4 * 2^-24; a sum, a quotient and two products round once each.
// Below exp(-87) a result is 0 where the reference has less than 120 * exp(-87) < 2e-36.
constexpr Bound kSiluBound = {8 * 0x1p-24, 1e-35};
// 1 + g * (1 - s) cancels around g = -1.28, where it is a difference of numbers near 1, and
// 1 - s near g = 17 and above, where it is 0; both weighed with |grad_y * up| < 40.
constexpr Bound kGradGateBound = {16 * 0x1p-24, 40 * 16 * 0x1p-24};

BOOST_AUTO_TEST_CASE(swiglu_forward_over_the_whole_range) {
  Random random(test_seed(143));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t f : kWidths) {
      const Guarded gate(gates(random, 3 * f), dtype, {3, f});
      const Guarded up(normal_values(random, 3 * f), dtype, {3, f});
      const auto op = [&](const OpTable& table, ThreadPool& pool) {
        const Guarded y(dtype, {3, f});
        run_op(table.swiglu_forward,
               SwigluForwardArgs{.gate = gate.view(), .up = up.view(), .y = y.view()}, pool);
        BOOST_TEST(y.intact());
        return Outputs{y.values()};
      };
      check_op(op, rounded(dtype, kSiluBound));
    }
  }
}

void check_swiglu_backward(DType dtype, std::int64_t f, Random& random) {
  const Dims dims = {3, f};
  const std::vector<float> gate_values = gates(random, 3 * f);
  const std::vector<float> up_values = normal_values(random, 3 * f);
  const Guarded grad_y(normal_values(random, 3 * f), dtype, dims);
  for (const bool in_place : {false, true}) {
    const auto op = [&](const OpTable& table, ThreadPool& pool) {
      const Guarded gate(gate_values, dtype, dims), up(up_values, dtype, dims);
      const Guarded other_gate(dtype, dims), other_up(dtype, dims);
      const Guarded& grad_gate = in_place ? gate : other_gate;
      const Guarded& grad_up = in_place ? up : other_up;
      run_op(table.swiglu_backward,
             SwigluBackwardArgs{.grad_y = grad_y.view(),
                                .gate = gate.view(),
                                .up = up.view(),
                                .grad_gate = grad_gate.view(),
                                .grad_up = grad_up.view()},
             pool);
      BOOST_TEST(grad_gate.intact());
      BOOST_TEST(grad_up.intact());
      return Outputs{grad_gate.values(), grad_up.values()};
    };
    check_op(op, rounded(dtype, kGradGateBound));
  }
}

BOOST_AUTO_TEST_CASE(swiglu_backward_over_the_whole_range) {
  Random random(test_seed(144));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t f : kWidths) check_swiglu_backward(dtype, f, random);
  }
}

BOOST_AUTO_TEST_CASE(residual_is_one_fp32_sum) {
  Random random(test_seed(145));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t c : kWidths) {
      const std::vector<float> values = normal_values(random, 3 * c);
      const Guarded b(normal_values(random, 3 * c), dtype, {3, c});
      for (const bool in_place : {false, true}) {
        const auto op = [&](const OpTable& table, ThreadPool& pool) {
          const Guarded a(values, DType::kF32, {3, c}), other(DType::kF32, {3, c});
          const Guarded& y = in_place ? a : other;
          run_op(table.residual, ResidualArgs{.a = a.view(), .b = b.view(), .y = y.view()}, pool);
          BOOST_TEST(y.intact());
          return Outputs{y.values()};
        };
        check_op(op, {});  // the sum of two floats, rounded once, whoever makes it
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(fill_reaches_every_element_and_no_other) {
  for (const std::int64_t count : {1, 15, 17, 4095, 4096, 4097, 12289}) {
    const auto op = [&](const OpTable& table, ThreadPool& pool) {
      const Guarded x(DType::kF32, {count});
      run_op(table.fill, FillArgs{.x = x.view(), .value = -2.5f}, pool);
      BOOST_TEST(x.intact());
      return Outputs{x.values()};
    };
    check_op(op, {});
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
