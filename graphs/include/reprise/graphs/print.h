// A graph in words, as JSON, or as Graphviz DOT.
#pragma once

#include <filesystem>
#include <string>

#include "reprise/graphs/plan.h"

namespace reprise {

std::string to_text(const Graph& graph, const GraphPlan& plan);
std::string to_dot(const Graph& graph, const GraphPlan& plan);
// {"name", "arena_bytes", "values": [...], "nodes": [{op, layer, projection, pass, shapes,
// attributes, implementation, reads, writes}]}
std::string to_json(const Graph& graph, const GraphPlan& plan);

// Writes in the format that the extension names: .json, .dot or .txt. Throws UsageError otherwise.
void write_graph(const std::filesystem::path& path, const Graph& graph, const GraphPlan& plan);

}  // namespace reprise
