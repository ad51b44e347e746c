// Implementations, scratch and lifetimes of a graph.
#include <algorithm>

#include "graphs/ir/kernel_args.h"
#include "reprise/graphs/plan.h"

namespace reprise {
namespace {

NodePlan plan_node(const Graph& graph, std::size_t index, const OperandReader& reader,
                   const OpTable& ops, int threads) {
  return with_args(graph.nodes[index], reader, [&](const auto& args) {
    const auto& choice = select(list_for(ops, args), args, describe_node(graph, index).c_str());
    NodePlan plan;
    plan.implementation = choice.name;
    if (choice.scratch_bytes != nullptr) plan.scratch_bytes = choice.scratch_bytes(args, threads);
    return plan;
  });
}

// Lifetimes of the activations, in order of their first use.
std::vector<Placement> activation_lifetimes(const Graph& graph, Reuse reuse) {
  std::vector<Placement> lifetimes;
  std::vector<std::int32_t> slot(graph.values.size(), -1);
  const auto count = static_cast<std::int32_t>(graph.nodes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    for (const Operand& operand : operands(graph.nodes[static_cast<std::size_t>(i)].op)) {
      const ValueId storage = graph.storage(operand.value);
      const Value& value = graph.value(storage);
      if (value.kind != ValueKind::kActivation) continue;
      std::int32_t& index = slot[static_cast<std::size_t>(storage.index)];
      if (index < 0) {
        index = static_cast<std::int32_t>(lifetimes.size());
        lifetimes.push_back({.value = storage, .bytes = value.bytes(), .first = i});
      }
      lifetimes[static_cast<std::size_t>(index)].last = i;
    }
  }
  if (reuse == Reuse::kRetain) {
    for (Placement& lifetime : lifetimes) {
      lifetime.first = 0;
      lifetime.last = count - 1;
    }
  }
  return lifetimes;
}

std::int64_t peak_live_bytes(const std::vector<Placement>& placements, std::size_t nodes) {
  std::vector<std::int64_t> change(nodes + 1, 0);
  for (const Placement& p : placements) {
    change[static_cast<std::size_t>(p.first)] += p.bytes;
    change[static_cast<std::size_t>(p.last) + 1] -= p.bytes;
  }
  std::int64_t live = 0, peak = 0;
  for (const std::int64_t delta : change) peak = std::max(peak, live += delta);
  return peak;
}

}  // namespace

GraphPlan make_plan(const Graph& graph, const OpTable& ops, int threads, Reuse reuse) {
  verify(graph);
  GraphPlan plan;
  plan.placements = activation_lifetimes(graph, reuse);
  plan.activation_bytes = peak_live_bytes(plan.placements, graph.nodes.size());
  const Addresses nowhere(graph);
  const OperandReader reader(graph, nowhere);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    plan.nodes.push_back(plan_node(graph, i, reader, ops, threads));
    const std::int64_t bytes = plan.nodes.back().scratch_bytes;
    plan.scratch_bytes = std::max(plan.scratch_bytes, bytes);
    const auto node = static_cast<std::int32_t>(i);
    if (bytes > 0)
      plan.placements.push_back({.value = {}, .bytes = bytes, .first = node, .last = node});
  }
  plan.arena_bytes = place(plan.placements);
  for (const Placement& p : plan.placements) {
    if (!p.value.present()) plan.nodes[static_cast<std::size_t>(p.first)].scratch_offset = p.offset;
  }
  return plan;
}

}  // namespace reprise
