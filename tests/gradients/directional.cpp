#include "tests/gradients/directional.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "reprise/kernels/cpu_ops.h"

namespace reprise::test {
namespace {

constexpr double kStep = 0x1p-4;  // h; h^2 makes the curvature small, 1/h the rounding of y
constexpr int kDirections = 6;

struct Loss {
  double value = 0;
  double magnitude = 0;  // sum |grad_y y|
};

Loss loss_at(const GradientCheck& check, const std::vector<float>& x,
             const std::vector<float>& direction, double t) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    (*check.input)[i] = x[i] + static_cast<float>(t) * direction[i];
  }
  const std::vector<float> y = check.forward();
  BOOST_REQUIRE_EQUAL(y.size(), check.grad_y->size());
  Loss loss;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double term = double{y[i]} * double{(*check.grad_y)[i]};
    loss.value += term;
    loss.magnitude += std::abs(term);
  }
  return loss;
}

void check_direction(const GradientCheck& check, const std::vector<float>& x,
                     const std::vector<float>& direction) {
  double analytic = 0, magnitude = 0, squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double term = double{(*check.grad)[i]} * double{direction[i]};
    analytic += term;
    magnitude += std::abs(term);
    squares += term * term;
  }
  const auto slope = [&](double h, double& rounding) {
    const Loss up = loss_at(check, x, direction, h), down = loss_at(check, x, direction, -h);
    rounding = 0x1p-24 * std::max(up.magnitude, down.magnitude) / h;
    return (up.value - down.value) / (2 * h);
  };
  double rounding = 0, ignored = 0;
  const double wide = slope(kStep, ignored), narrow = slope(kStep / 2, rounding);
  const double numeric = (4 * narrow - wide) / 3;
  // `rounding` is of the half step, twice that of the full one: 4/3 * 2 + 1/3 = 3 of the latter.
  const double tolerance = 1.5 * rounding + std::abs(wide - narrow) / 4 + 0x1p-19 * magnitude;
  BOOST_TEST(std::abs(numeric - analytic) <= tolerance,
             check.what << ": slope " << analytic << ", finite difference " << numeric
                        << ", tolerance " << tolerance);
  // A tolerance near the size of the slope would pass anything: a single wrong entry of typical
  // size must show.
  BOOST_TEST(tolerance <= 0.02 * std::sqrt(squares), check.what << ": the check is too coarse");
}

}  // namespace

std::vector<float> grid_values(Random& random, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    const double clamped = std::clamp(random.normal(), -4.0, 4.0);
    value = static_cast<float>(std::round(clamped * 1024) / 1024);
  }
  return values;
}

void check_gradient(const GradientCheck& check, Random& random) {
  const std::vector<float> x = *check.input;
  BOOST_REQUIRE_EQUAL(x.size(), check.grad->size());
  for (int round = 0; round < kDirections; ++round) {
    std::vector<float> direction(x.size());
    for (float& d : direction) d = static_cast<float>(random.between(-2, 2)) / 2;
    check_direction(check, x, direction);
  }
  *check.input = x;
}

bool ran(const NamedTable& table, bool has_run, const char* op) {
  BOOST_TEST(has_run, table.name << " has no " << op);
  return has_run;
}

const OpTable& reference_table() {
  static const OpTable table = reference_ops();
  return table;
}

const std::vector<NamedTable>& tables_under_test() {
  static const std::vector<NamedTable> tables = [] {
    std::vector<NamedTable> list = {{"reference", reference_ops()}};
    for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
      if (isa > detect_isa()) {
        BOOST_TEST_MESSAGE("skipped: this CPU has no " << name_of(isa));
        continue;
      }
      list.push_back({std::string("cpu ") + name_of(isa), cpu_ops(isa, LinearMode::kFused)});
    }
    return list;
  }();
  return tables;
}

}  // namespace reprise::test
