// Gradient of the head with its loss: masked rows and the loss scale.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <utility>

#include "tests/gradients/directional.h"

namespace reprise::test {
namespace {

struct Head {
  std::int64_t m, v, c;
  StepParams params{.loss_scale = 0.25f, .micro_step = 1};
  std::vector<float> x, weight, loss, nll;
  std::vector<std::int32_t> labels;

  Head(std::int64_t rows, std::int64_t vocabulary, std::int64_t width, Random& random)
      : m(rows),
        v(vocabulary),
        c(width),
        x(grid_values(random, rows * width)),
        weight(grid_values(random, vocabulary * width)),
        loss(zeros(2)),
        nll(zeros(rows)) {
    // Logits of a few units: the loss must bend, and not saturate.
    for (float& value : weight) value /= std::sqrt(static_cast<float>(width));
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool masked = row % 3 == 1;
      labels.push_back(masked ? kIgnoredLabel
                              : static_cast<std::int32_t>(random.between(0, vocabulary - 1)));
    }
  }

  bool run(const Implementations<CrossEntropyArgs>& list, std::vector<float>* grad_x) {
    CrossEntropyArgs args;
    args.x = view(std::as_const(x), {m, c});
    args.weight = view(std::as_const(weight), {v, c});
    args.labels = {labels.data(), DType::kI32, {m}};
    args.params = &params;
    args.loss = view(loss, {2});
    args.nll = view(nll, {m});
    if (grad_x != nullptr) args.grad_x = view(*grad_x, {m, c});
    return run_op(list, args, "cross_entropy");
  }
};

BOOST_AUTO_TEST_SUITE(cross_entropy_gradients)

// Through nll, of which every row is stored: the loss itself is a single FP32 number, too coarse to
// take differences of.
BOOST_AUTO_TEST_CASE(input) {
  Random random(test_seed(41));
  for (const NamedTable& table : tables_under_test()) {
    Head head(7, 65, 33, random);
    std::vector<float> grad_x(head.x.size(), NAN);
    if (!ran(table, head.run(table.ops.cross_entropy, &grad_x), "cross_entropy")) continue;
    const std::vector<float> grad_nll(7, head.params.loss_scale);
    check_gradient({.what = table.name + " cross_entropy grad_x",
                    .input = &head.x,
                    .grad = &grad_x,
                    .forward =
                        [&head] {
                          head.run(reference_table().cross_entropy, nullptr);
                          return head.nll;
                        },
                    .grad_y = &grad_nll},
                   random);
    for (std::size_t row : {1u, 4u}) {  // masked
      for (std::size_t i = row * 33; i < (row + 1) * 33; ++i) BOOST_TEST(grad_x[i] == 0.0f);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
