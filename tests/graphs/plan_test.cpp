// Memory plans: nothing that lives at the same time shares a byte, and little is wasted.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "reprise/graphs/step_builder.h"
#include "tests/support/tiny_run.h"

namespace reprise::test {
namespace {

// Checks every pair by brute force, sharing no code with the planner.
void require_disjoint(const std::vector<Placement>& placements, std::int64_t arena_bytes) {
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const Placement& a = placements[i];
    BOOST_TEST_REQUIRE(a.offset >= 0);
    BOOST_TEST_REQUIRE(a.offset % 64 == 0);
    BOOST_TEST_REQUIRE(a.offset + a.bytes <= arena_bytes);
    for (std::size_t j = 0; j < i; ++j) {
      const Placement& b = placements[j];
      const bool same_time = !(a.last < b.first || b.last < a.first);
      const bool same_bytes = !(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
      BOOST_TEST_REQUIRE(!(same_time && same_bytes), "placements " << i << " and " << j);
    }
  }
}

std::int64_t live_peak(const std::vector<Placement>& placements) {
  std::int64_t peak = 0;
  for (const Placement& at : placements) {
    std::int64_t live = 0;
    for (const Placement& p : placements) {
      if (p.first <= at.first && at.first <= p.last) live += p.bytes;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

StepGraph build(StepKind kind, const ModelConfig& model, std::int64_t accumulate = 1) {
  StepOptions options;
  options.kind = kind;
  options.shape = {.batch = 2, .seq = 24, .accumulate = accumulate};
  options.lora.rank = 8;
  return build_step(model, make_lora_layout(model, options.lora), options);
}

}  // namespace

BOOST_AUTO_TEST_CASE(random_lifetimes_never_share_bytes) {
  Random random(test_seed(20));
  for (int round = 0; round < 200; ++round) {
    std::vector<Placement> placements;
    const std::int64_t count = random.between(1, 60);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto first = static_cast<std::int32_t>(random.between(0, 30));
      placements.push_back({.value = {},
                            .bytes = random.between(1, 5000),
                            .first = first,
                            .last = first + static_cast<std::int32_t>(random.between(0, 15))});
    }
    const std::int64_t arena = place(placements);
    require_disjoint(placements, arena);
    BOOST_TEST(arena >= live_peak(placements));
  }
}

BOOST_AUTO_TEST_CASE(step_plans_are_disjoint_and_tight) {
  const OpTable ops = reference_ops();
  for (const StepKind kind : {StepKind::kTrain, StepKind::kEvaluate, StepKind::kHidden}) {
    const StepGraph step = build(kind, find_shape("tiny")->config);
    const GraphPlan plan = make_plan(step.graph, ops, 2, Reuse::kReuse);
    require_disjoint(plan.placements, plan.arena_bytes);
    const std::int64_t peak = live_peak(plan.placements);
    BOOST_TEST(plan.arena_bytes >= peak);
    // Fragmentation: measured below 1 % for these graphs; a planner that stopped reusing would
    // need several times the peak.
    BOOST_TEST(static_cast<double>(plan.arena_bytes) <= 1.1 * static_cast<double>(peak));
  }
}

BOOST_AUTO_TEST_CASE(lifetimes_cover_every_use) {
  const StepGraph step = build(StepKind::kTrain, tiny_config());
  const GraphPlan plan = make_plan(step.graph, reference_ops(), 1, Reuse::kReuse);
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i) {
    for (const Operand& operand : operands(step.graph.nodes[i].op)) {
      if (step.graph.value(operand.value).kind != ValueKind::kActivation) continue;
      const auto covers = [&](const Placement& p) {
        const auto node = static_cast<std::int32_t>(i);
        return p.value == operand.value && p.first <= node && node <= p.last;
      };
      BOOST_TEST(std::count_if(plan.placements.begin(), plan.placements.end(), covers) == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(retaining_keeps_every_activation_apart) {
  const StepGraph step = build(StepKind::kDump, tiny_config());
  const GraphPlan plan = make_plan(step.graph, reference_ops(), 1, Reuse::kRetain);
  require_disjoint(plan.placements, plan.arena_bytes);
  std::int64_t sum = 0;
  for (const Value& value : step.graph.values) {
    if (value.kind == ValueKind::kActivation) sum += value.bytes();
  }
  BOOST_TEST(plan.activation_bytes == sum);
}

BOOST_AUTO_TEST_CASE(an_op_without_implementation_is_named) {
  OpTable ops = reference_ops();
  ops.rope.clear();
  const StepGraph step = build(StepKind::kTrain, tiny_config());
  BOOST_CHECK_EXCEPTION(make_plan(step.graph, ops, 1, Reuse::kReuse), Error, [](const Error& e) {
    return std::string(e.what()).find("layers.0.q_proj rope_forward") != std::string::npos;
  });
}

}  // namespace reprise::test
