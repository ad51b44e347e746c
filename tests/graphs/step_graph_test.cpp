// What the step graphs consist of, what verify() refuses, and how they are printed.
#include <boost/test/unit_test.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "reprise/graphs/print.h"
#include "reprise/graphs/step_builder.h"
#include "tests/support/tiny_run.h"

namespace reprise::test {
namespace {

StepGraph build(const ModelConfig& model, StepOptions options) {
  return build_step(model, make_lora_layout(model, options.lora), options);
}

std::map<std::string, int> count_ops(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) ++counts[op_name(node.op)];
  return counts;
}

std::string message_of(const Graph& graph) {
  try {
    verify(graph);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_28_layer_step_has_196_backward_projections) {
  const ModelConfig& model = find_shape("qwen2.5-1.5b")->config;
  StepOptions options;
  options.shape = {.batch = 1, .seq = 16, .accumulate = 1};
  const StepGraph whole = build(model, options);
  verify(whole.graph);
  auto counts = count_ops(whole.graph);
  BOOST_TEST(counts["linear_nf4_forward"] == 196);
  BOOST_TEST(counts["linear_nf4_backward"] == 196);
  BOOST_TEST(counts["lora_backward"] == 196);
  BOOST_TEST(counts["attention_backward"] == 28);
  BOOST_TEST(counts["cross_entropy"] == 1);
  BOOST_TEST(counts["adamw"] == 1);
  options.prune = true;
  const StepGraph pruned = build(model, options);
  verify(pruned.graph);
  // Nothing reads the input gradients of q, k and v in layer 0.
  BOOST_TEST(count_ops(pruned.graph)["linear_nf4_backward"] == 193);
  BOOST_TEST(count_ops(pruned.graph)["lora_backward"] == 196);
}

BOOST_AUTO_TEST_CASE(accumulation_splits_the_step_in_two) {
  StepOptions options;
  options.shape = {.batch = 1, .seq = 8, .accumulate = 4};
  options.kind = StepKind::kMicroStep;
  const StepGraph micro = build(tiny_config(), options);
  verify(micro.graph);
  BOOST_TEST(count_ops(micro.graph).count("adamw") == 0u);
  BOOST_TEST((micro.graph.value(micro.values.loss).dims == Dims({4})));
  options.kind = StepKind::kUpdate;
  const StepGraph update = build(tiny_config(), options);
  verify(update.graph);
  const std::map<std::string, int> expected = {
      {"grad_norm", 1}, {"clip", 1}, {"adamw", 1}, {"fill", 1}};
  BOOST_TEST((count_ops(update.graph) == expected));
  options.kind = StepKind::kTrain;
  BOOST_CHECK_THROW(build(tiny_config(), options), Error);
}

BOOST_AUTO_TEST_CASE(only_targeted_projections_have_adapters) {
  StepOptions options;
  options.shape = {.batch = 1, .seq = 8, .accumulate = 1};
  options.lora.target_modules = {Projection::kQ, Projection::kDown};
  const StepGraph step = build(tiny_config(), options);
  verify(step.graph);
  for (const Node& node : step.graph.nodes) {
    if (const auto* linear = std::get_if<node::LinearNf4Forward>(&node.op)) {
      const bool targeted =
          node.projection == Projection::kQ || node.projection == Projection::kDown;
      BOOST_TEST(linear->lora.a.present() == targeted);
      BOOST_TEST(linear->u.present() == targeted);
    }
  }
  BOOST_TEST(count_ops(step.graph)["lora_backward"] == 4);
}

BOOST_AUTO_TEST_CASE(verify_names_what_is_wrong) {
  Graph graph;
  graph.name = "wrong";
  const auto value = [&](const char* name, Dims dims, ValueKind kind) {
    return graph.add_value(
        {.name = name, .dtype = DType::kF32, .dims = dims, .kind = kind, .parent = {}});
  };
  const ValueId a = value("a", {2, 3}, ValueKind::kInput);
  const ValueId b = value("b", {2, 3}, ValueKind::kActivation);
  const ValueId y = value("y", {2, 3}, ValueKind::kActivation);
  const ValueId frozen = value("frozen", {2, 3}, ValueKind::kFrozen);
  const ValueId narrow = value("narrow", {2, 2}, ValueKind::kInput);
  const auto with = [&](node::Residual op) {
    graph.nodes = {{op, Pass::kForward}};
    return message_of(graph);
  };
  BOOST_TEST(with({a, a, y}) == "");
  BOOST_TEST(contains(with({a, b, y}), "reads b before it is written"));
  BOOST_TEST(contains(with({a, a, frozen}), "writes frozen, which is read-only"));
  BOOST_TEST(contains(with({a, narrow, y}), "b must be F32 or BF16[2, 3], is F32[2, 2]"));
  graph.add_part(y, "part", {2, 2}, 16);
  BOOST_TEST(contains(with({a, a, y}), "part leaves y"));
}

BOOST_AUTO_TEST_CASE(in_place_updates_read_and_write) {
  const std::vector<Operand> list = operands(node::Rope{
      .x = {3}, .table = {1}, .y = {3}, .heads = 2, .direction = RopeDirection::kForward});
  BOOST_TEST(list.size() == 2u);
  BOOST_TEST(list[0].reads());
  BOOST_TEST(list[0].writes());
}

BOOST_AUTO_TEST_CASE(the_printed_json_names_every_node) {
  StepOptions options;
  options.shape = {.batch = 1, .seq = 8, .accumulate = 1};
  const StepGraph step = build(tiny_config(), options);
  const GraphPlan plan = make_plan(step.graph, reference_ops(), 1, Reuse::kReuse);
  const auto json = nlohmann::json::parse(to_json(step.graph, plan));
  BOOST_TEST(json.at("nodes").size() == step.graph.nodes.size());
  BOOST_TEST(json.at("arena_bytes") == plan.arena_bytes);
  int backward_downs = 0;
  for (const auto& node : json.at("nodes")) {
    for (const char* key :
         {"op", "layer", "projection", "pass", "shapes", "implementation", "reads", "writes"}) {
      BOOST_TEST(node.contains(key), key);
    }
    if (node.at("op") != "linear_nf4_backward" || node.at("projection") != "down_proj") continue;
    ++backward_downs;
    BOOST_TEST(node.at("pass") == "backward");
    BOOST_TEST(node.at("implementation") == "reference");
    BOOST_TEST(node.at("shapes").at("weight") == "NF4[48, 80]");
    BOOST_TEST(node.at("shapes").at("grad_x") == "F32[8, 80]");
  }
  BOOST_TEST(backward_downs == 2);
  BOOST_TEST(contains(to_dot(step.graph, plan), "n0 -> n1"));
  BOOST_TEST(contains(to_text(step.graph, plan), "linear_nf4_backward\treference"));
  BOOST_CHECK_THROW(write_graph("graph.png", step.graph, plan), UsageError);
}

}  // namespace reprise::test
