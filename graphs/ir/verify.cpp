// What must hold for a graph before anything is planned or run.
#include <set>

#include "graphs/ir/kernel_args.h"

namespace reprise {
namespace {

void verify_values(const Graph& graph) {
  for (const Value& value : graph.values) {
    if (value.dims.rank() == 0 || value.dims.count() <= 0) {
      throw Error("graph value " + value.name + " has no elements: " + to_string(value.dims));
    }
    if (!value.parent.present()) continue;
    const Value& whole = graph.value(value.parent);
    if (value.offset < 0 || value.offset + value.bytes() > whole.bytes()) {
      throw Error("graph value " + value.name + " leaves " + whole.name);
    }
    if (value.dtype != whole.dtype || value.kind != whole.kind) {
      throw Error("graph value " + value.name + " differs in type or kind from " + whole.name);
    }
  }
}

bool may_be_written(ValueKind kind) {
  return kind == ValueKind::kTrained || kind == ValueKind::kActivation ||
         kind == ValueKind::kResult;
}

bool must_be_written_first(ValueKind kind) {
  return kind == ValueKind::kActivation || kind == ValueKind::kResult;
}

}  // namespace

void verify(const Graph& graph) {
  verify_values(graph);
  const Addresses nowhere(graph);
  const OperandReader reader(graph, nowhere);
  std::set<std::int32_t> written;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::vector<Operand> list = operands(graph.nodes[i].op);
    for (const Operand& operand : list) {
      const auto index = static_cast<std::size_t>(operand.value.index);
      if (index >= graph.values.size()) {
        throw Error(describe_node(graph, i) + ": operand " + operand.role + " is no value");
      }
      const Value& value = graph.values[index];
      const std::int32_t storage = graph.storage(operand.value).index;
      if (operand.reads() && must_be_written_first(value.kind) && !written.contains(storage)) {
        throw Error(describe_node(graph, i) + " reads " + value.name + " before it is written");
      }
      if (operand.writes() && !may_be_written(value.kind)) {
        throw Error(describe_node(graph, i) + " writes " + value.name + ", which is read-only");
      }
    }
    for (const Operand& operand : list) {
      if (operand.writes()) written.insert(graph.storage(operand.value).index);
    }
    const Support contract =
        with_args(graph.nodes[i], reader, [](const auto& args) { return check(args); });
    if (!contract.ok()) throw Error(describe_node(graph, i) + ": " + contract.reason());
  }
}

}  // namespace reprise
