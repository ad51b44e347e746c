#include "reprise/runtime/lora.h"

#include <cmath>
#include <set>

#include "tests/runtime/golden_adapter.h"

namespace reprise::test {
namespace {

BOOST_AUTO_TEST_SUITE(lora)

BOOST_AUTO_TEST_CASE(layout_places_every_matrix_once) {
  LoraConfig config;
  config.rank = 3;  // odd sizes, so that padding is needed
  config.target_modules = {Projection::kDown, Projection::kQ, Projection::kV};
  const ModelConfig model = golden_model("llama");
  const LoraLayout layout = make_lora_layout(model, config);
  BOOST_REQUIRE_EQUAL(layout.slots.size(), 6u);
  std::int64_t position = 0;
  for (const LoraSlot& slot : layout.slots) {
    BOOST_CHECK_EQUAL(slot.in_features, model.in_features(slot.projection));
    BOOST_CHECK_EQUAL(slot.out_features, model.out_features(slot.projection));
    for (const auto& [offset, count] :
         {std::pair(slot.a_offset, slot.a_count()), std::pair(slot.b_offset, slot.b_count())}) {
      BOOST_CHECK_EQUAL(offset % 16, 0);
      BOOST_CHECK_GE(offset, position);
      BOOST_CHECK_LT(offset - position, 16);
      position = offset + count;
    }
    BOOST_CHECK(layout.find(slot.layer, slot.projection) == &slot);
  }
  BOOST_CHECK_GE(layout.count, position);
  BOOST_CHECK_EQUAL(layout.count % 16, 0);
  BOOST_CHECK(layout.slots[0].projection == Projection::kQ);
  BOOST_CHECK(layout.slots[2].projection == Projection::kDown);
  BOOST_CHECK(layout.find(0, Projection::kK) == nullptr);
  BOOST_CHECK(layout.find(2, Projection::kQ) == nullptr);
  BOOST_CHECK(layout.find(-1, Projection::kQ) == nullptr);
}

BOOST_AUTO_TEST_CASE(initial_values_are_kaiming_uniform_and_zero) {
  LoraConfig config;
  config.rank = 16;
  const LoraLayout layout = make_lora_layout(golden_model("qwen2"), config);
  std::vector<float> params(static_cast<std::size_t>(layout.count), -7);
  initialise_lora(layout, 42, params.data());
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  std::set<float> seen;
  for (const LoraSlot& slot : layout.slots) {
    const double bound = 1 / std::sqrt(static_cast<double>(slot.in_features));
    for (std::int64_t i = 0; i < slot.a_count(); ++i) {
      const double value =
          static_cast<double>(params[static_cast<std::size_t>(slot.a_offset + i)]) / bound;
      BOOST_REQUIRE(std::abs(value) <= 1);
      sum += value;
      squares += value * value;
      ++count;
      seen.insert(static_cast<float>(value));
    }
    for (std::int64_t i = 0; i < slot.b_count(); ++i) {
      BOOST_REQUIRE_EQUAL(params[static_cast<std::size_t>(slot.b_offset + i)], 0);
    }
  }
  // Uniform on [-1, 1]: mean 0 and second moment 1/3, each within five standard errors.
  const auto n = static_cast<double>(count);
  BOOST_CHECK_LT(std::abs(sum / n), 5 * std::sqrt(1 / (3 * n)));
  BOOST_CHECK_LT(std::abs(squares / n - 1.0 / 3), 5 * std::sqrt(4 / (45 * n)));
  BOOST_CHECK_GT(static_cast<double>(seen.size()), 0.99 * n);  // no matrix repeats another

  std::vector<float> again(params.size());
  initialise_lora(layout, 42, again.data());
  BOOST_CHECK(again == params);
  initialise_lora(layout, 43, again.data());
  BOOST_CHECK(again != params);
  // A matrix does not depend on which other modules are adapted.
  config.target_modules = {Projection::kUp};
  const LoraLayout less = make_lora_layout(golden_model("qwen2"), config);
  std::vector<float> few(static_cast<std::size_t>(less.count));
  initialise_lora(less, 42, few.data());
  const LoraSlot* in_all = layout.find(1, Projection::kUp);
  const LoraSlot* alone = less.find(1, Projection::kUp);
  BOOST_CHECK(std::equal(few.begin() + alone->a_offset,
                         few.begin() + alone->a_offset + alone->a_count(),
                         params.begin() + in_all->a_offset));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
