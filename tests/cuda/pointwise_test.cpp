// RMS normalisation and the ops that work element by element, on the device against the reference.
#include <cmath>

#include "tests/cuda/on_device.h"
#include "tests/kernels/run_op.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kWidths[] = {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200};

// Sums of up to 200 terms over 32 lanes and a few roundings more: below 20 of 2^-24 in a row. A
// bf16 result may be the neighbour of the reference's where the two straddle a tie: rare, so that
// the norm moves by far less than the 2^-8 of one element.
double bound_of(DType out) { return out == DType::kBF16 ? 0x1p-9 : 20 * 0x1p-24; }

BOOST_AUTO_TEST_SUITE(cuda_pointwise)

BOOST_AUTO_TEST_CASE(rms_norm_forward) {
  Random random(test_seed(311));
  for (const DType out : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t c : kWidths) {
      const std::int64_t m = 201 - c;
      const Guarded x(normal_values(random, m * c), DType::kF32, {m, c});
      const Guarded weight(normal_values(random, c), DType::kF32, {c});
      const Op op = [&](const OpTable& table, ThreadPool& pool) {
        const Guarded y(out, {m, c}), inv_rms(DType::kF32, {m});
        run_op(table.rms_norm_forward,
               RmsNormForwardArgs{.x = x.view(),
                                  .weight = weight.view(),
                                  .eps = 1e-5f,
                                  .y = y.view(),
                                  .inv_rms = inv_rms.view()},
               pool);
        return Results{y.values(), inv_rms.values()};
      };
      BOOST_TEST_CONTEXT(m << " x " << c) { check_close(op, bound_of(out)); }
    }
  }
}

BOOST_AUTO_TEST_CASE(rms_norm_backward) {
  Random random(test_seed(312));
  for (const OutputMode mode : {OutputMode::kOverwrite, OutputMode::kAccumulate}) {
    for (const std::int64_t c : kWidths) {
      const Dims dims = {17, c};
      // inv_rms is an input of its own: that of x would make one column's gradient cancel.
      std::vector<float> inv_rms;
      for (int i = 0; i < 17; ++i)
        inv_rms.push_back(static_cast<float>(0.5 + random.uniform() / 4));
      const Guarded inverse(inv_rms, DType::kF32, {17});
      const Guarded grad_y(normal_values(random, dims.count()), DType::kF32, dims);
      const Guarded x(normal_values(random, dims.count()), DType::kF32, dims);
      const Guarded weight(normal_values(random, c), DType::kF32, {c});
      const std::vector<float> initial = normal_values(random, dims.count());
      const Op op = [&](const OpTable& table, ThreadPool& pool) {
        const Guarded grad_x = mode == OutputMode::kAccumulate ? Guarded(initial, DType::kF32, dims)
                                                               : Guarded(DType::kF32, dims);
        run_op(table.rms_norm_backward,
               RmsNormBackwardArgs{.grad_y = grad_y.view(),
                                   .x = x.view(),
                                   .weight = weight.view(),
                                   .inv_rms = inverse.view(),
                                   .grad_x = grad_x.view(),
                                   .mode = mode},
               pool);
        return Results{grad_x.values()};
      };
      BOOST_TEST_CONTEXT(c) { check_close(op, bound_of(DType::kF32)); }
    }
  }
}

BOOST_AUTO_TEST_CASE(embedding_copies_rows) {
  Random random(test_seed(313));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t c : kWidths) {
      const Guarded rows(normal_values(random, 11 * c), dtype, {11, c});
      std::vector<std::int32_t> ids = {0, 10};
      while (ids.size() < 37) ids.push_back(static_cast<std::int32_t>(random.between(0, 10)));
      check_exact([&](const OpTable& table, ThreadPool& pool) {
        const Guarded y(DType::kF32, {37, c});
        run_op(table.embedding_forward,
               EmbeddingForwardArgs{
                   .ids = {ids.data(), DType::kI32, {37}}, .table = rows.view(), .y = y.view()},
               pool);
        return Results{y.values()};
      });
    }
  }
}

struct RopeCase {
  DType dtype;
  RopeDirection direction;
  std::int64_t half;
  bool in_place;
};

void check_rope(const RopeCase& c, Random& random) {
  constexpr std::int64_t kSeq = 5, kHeads = 3;
  std::vector<float> angles;
  for (std::int64_t i = 0; i < kSeq * c.half; ++i) {
    const double angle = random.uniform() * 7;
    angles.push_back(static_cast<float>(std::cos(angle)));
    angles.push_back(static_cast<float>(std::sin(angle)));
  }
  const Guarded cos_sin(angles, DType::kF32, {kSeq, c.half, 2});
  const Dims dims = {4 * kSeq, kHeads * 2 * c.half};
  const std::vector<float> values = normal_values(random, dims.count());
  const Op op = [&](const OpTable& table, ThreadPool& pool) {
    const Guarded x(values, c.dtype, dims), other(c.dtype, dims);
    const Guarded& y = c.in_place ? x : other;
    run_op(table.rope,
           RopeArgs{.x = x.view(),
                    .table = cos_sin.view(),
                    .heads = kHeads,
                    .direction = c.direction,
                    .y = y.view()},
           pool);
    return Results{y.values()};
  };
  check_close(op, bound_of(c.dtype));
}

BOOST_AUTO_TEST_CASE(rope_turns_pairs_of_halves) {
  Random random(test_seed(314));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kInverse}) {
      for (const std::int64_t half : {1, 15, 16, 64}) {
        for (const bool in_place : {false, true}) {
          check_rope({dtype, direction, half, in_place}, random);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(swiglu_forward) {
  Random random(test_seed(315));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t f : kWidths) {
      const Guarded gate(normal_values(random, 3 * f, 4), dtype, {3, f});
      const Guarded up(normal_values(random, 3 * f), dtype, {3, f});
      const Op op = [&](const OpTable& table, ThreadPool& pool) {
        const Guarded y(dtype, {3, f});
        run_op(table.swiglu_forward,
               SwigluForwardArgs{.gate = gate.view(), .up = up.view(), .y = y.view()}, pool);
        return Results{y.values()};
      };
      check_close(op, bound_of(dtype));
    }
  }
}

BOOST_AUTO_TEST_CASE(swiglu_backward_also_in_place) {
  Random random(test_seed(316));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t f : kWidths) {
      const Dims dims = {3, f};
      const std::vector<float> gates = normal_values(random, 3 * f, 4);
      const std::vector<float> ups = normal_values(random, 3 * f);
      const Guarded grad_y(normal_values(random, 3 * f), dtype, dims);
      for (const bool in_place : {false, true}) {
        const Op op = [&](const OpTable& table, ThreadPool& pool) {
          const Guarded gate(gates, dtype, dims), up(ups, dtype, dims);
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
          return Results{grad_gate.values(), grad_up.values()};
        };
        check_close(op, bound_of(dtype));
      }
    }
  }
}

// At both ends of exp: the sigmoid is 0 or 1 and nothing overflows into NaN.
BOOST_AUTO_TEST_CASE(swiglu_of_extreme_gates_is_finite) {
  const std::vector<float> gates = {-1e4f, -120, -88, 88, 120, 1e4f};
  const Guarded gate(gates, DType::kF32, {1, 6});
  const Guarded up(std::vector<float>(6, 2.0f), DType::kF32, {1, 6});
  const Op op = [&](const OpTable& table, ThreadPool& pool) {
    const Guarded grad_gate(DType::kF32, {1, 6}), grad_up(DType::kF32, {1, 6});
    run_op(table.swiglu_backward,
           SwigluBackwardArgs{.grad_y = up.view(),
                              .gate = gate.view(),
                              .up = up.view(),
                              .grad_gate = grad_gate.view(),
                              .grad_up = grad_up.view()},
           pool);
    return Results{grad_gate.values(), grad_up.values()};
  };
  check_close(op, bound_of(DType::kF32));
}

// A sum of two floats, rounded once, whoever makes it.
BOOST_AUTO_TEST_CASE(residual_is_one_fp32_sum) {
  Random random(test_seed(317));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t c : kWidths) {
      const std::vector<float> values = normal_values(random, 3 * c);
      const Guarded b(normal_values(random, 3 * c), dtype, {3, c});
      for (const bool in_place : {false, true}) {
        check_exact([&](const OpTable& table, ThreadPool& pool) {
          const Guarded a(values, DType::kF32, {3, c}), other(DType::kF32, {3, c});
          const Guarded& y = in_place ? a : other;
          run_op(table.residual, ResidualArgs{.a = a.view(), .b = b.view(), .y = y.view()}, pool);
          return Results{y.values()};
        });
      }
    }
  }
}

// The last count is more than the threads of the largest grid.
BOOST_AUTO_TEST_CASE(fill_reaches_every_element_and_no_other) {
  for (const std::int64_t count : {1, 255, 256, 257, 2048 * 256 + 1}) {
    check_exact([&](const OpTable& table, ThreadPool& pool) {
      const Guarded x(DType::kF32, {count});
      run_op(table.fill, FillArgs{.x = x.view(), .value = -2.5f}, pool);
      return Results{x.values()};
    });
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
