// A graph in words, as JSON, or as Graphviz DOT.
#include "reprise/graphs/print.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "graphs/ir/attributes.h"
#include "reprise/runtime/durable_file.h"

namespace reprise {
namespace {

std::string shape_of(const Value& value) {
  const char* dtype = value.kind == ValueKind::kFrozenNf4 ? "NF4" : name_of(value.dtype);
  return dtype + to_string(value.dims);
}

const char* name_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::kInput:
      return "input";
    case ValueKind::kFrozen:
      return "frozen";
    case ValueKind::kFrozenNf4:
      return "frozen_nf4";
    case ValueKind::kTrained:
      return "trained";
    case ValueKind::kActivation:
      return "activation";
    case ValueKind::kResult:
      return "result";
  }
  return "?";
}

// "q_proj", or nothing.
std::string projection_of(const Node& node) {
  return node.projection == Projection::kNone ? "" : name_of(node.projection);
}

// The projections that the frozen linear ops and their adapters belong to; rope nodes also carry
// one, which tells q from k.
nlohmann::json node_json(const Graph& graph, const GraphPlan& plan, std::size_t index) {
  const Node& node = graph.nodes[index];
  nlohmann::json reads = nlohmann::json::array(), writes = nlohmann::json::array();
  nlohmann::json shapes = nlohmann::json::object(), constants = nlohmann::json::object();
  for (const Attribute& attribute : attributes(node.op)) {
    constants[attribute.name] = attribute.value;
  }
  for (const Operand& operand : operands(node.op)) {
    const Value& value = graph.value(operand.value);
    if (operand.reads()) reads.push_back(value.name);
    if (operand.writes()) writes.push_back(value.name);
    shapes[operand.role] = shape_of(value);
  }
  nlohmann::json json{{"index", index},
                      {"op", op_name(node.op)},
                      {"pass", name_of(node.pass)},
                      {"layer", nullptr},
                      {"projection", nullptr},
                      {"shapes", shapes},
                      {"attributes", constants},
                      {"implementation", plan.nodes[index].implementation},
                      {"scratch_bytes", plan.nodes[index].scratch_bytes},
                      {"reads", reads},
                      {"writes", writes}};
  if (node.layer >= 0) json["layer"] = node.layer;
  if (node.projection != Projection::kNone) json["projection"] = projection_of(node);
  return json;
}

}  // namespace

std::string to_text(const Graph& graph, const GraphPlan& plan) {
  std::ostringstream out;
  out << graph.name << ": " << graph.nodes.size() << " nodes, " << graph.values.size()
      << " values, arena " << plan.arena_bytes << " bytes\n";
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    out << i << '\t' << name_of(node.pass) << '\t';
    if (node.layer >= 0) out << node.layer;
    out << '\t' << projection_of(node) << '\t' << op_name(node.op) << '\t'
        << plan.nodes[i].implementation;
    for (const Operand& operand : operands(node.op)) {
      const Value& value = graph.value(operand.value);
      const char* arrow = !operand.writes() ? " <" : operand.reads() ? " <>" : " >";
      out << arrow << operand.role << '=' << value.name << ':' << shape_of(value);
    }
    out << '\n';
  }
  return out.str();
}

std::string to_dot(const Graph& graph, const GraphPlan& plan) {
  std::ostringstream out;
  out << "digraph step {\n  rankdir=TB;\n  node [shape=box];\n";
  std::vector<std::int64_t> writer(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    out << "  n" << i << " [label=\"" << op_name(node.op);
    if (node.layer >= 0) out << "\\nlayer " << node.layer << ' ' << projection_of(node);
    out << "\\n" << plan.nodes[i].implementation << "\"];\n";
    const std::vector<Operand> list = operands(node.op);
    for (const Operand& operand : list) {
      const auto storage = static_cast<std::size_t>(graph.storage(operand.value).index);
      if (operand.reads() && writer[storage] >= 0) {
        out << "  n" << writer[storage] << " -> n" << i << " [label=\""
            << graph.values[storage].name << "\"];\n";
      }
    }
    for (const Operand& operand : list) {
      if (operand.writes()) {
        writer[static_cast<std::size_t>(graph.storage(operand.value).index)] =
            static_cast<std::int64_t>(i);
      }
    }
  }
  out << "}\n";
  return out.str();
}

std::string to_json(const Graph& graph, const GraphPlan& plan) {
  nlohmann::json values = nlohmann::json::array(), nodes = nlohmann::json::array();
  for (const Value& value : graph.values) {
    values.push_back(
        {{"name", value.name}, {"kind", name_of(value.kind)}, {"shape", shape_of(value)}});
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) nodes.push_back(node_json(graph, plan, i));
  const nlohmann::json json{{"name", graph.name},
                            {"arena_bytes", plan.arena_bytes},
                            {"activation_bytes", plan.activation_bytes},
                            {"values", values},
                            {"nodes", nodes}};
  return json.dump(1) + "\n";
}

void write_graph(const std::filesystem::path& path, const Graph& graph, const GraphPlan& plan) {
  std::string text;
  if (path.extension() == ".json") {
    text = to_json(graph, plan);
  } else if (path.extension() == ".dot") {
    text = to_dot(graph, plan);
  } else if (path.extension() == ".txt") {
    text = to_text(graph, plan);
  } else {
    throw UsageError("cannot write the graph to \"" + path.string() +
                     "\": the name must end in .json, .dot or .txt");
  }
  write_durably(path, {std::as_bytes(std::span(text))});
}

}  // namespace reprise
