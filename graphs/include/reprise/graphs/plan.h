// From a graph to something that can run: which implementation computes each node, how much scratch
// it needs, and where in one arena every activation lies. Pure: no weights, no arena needed, so
// that
// `--dry-run` and the memory report come from the same code as the run itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reprise/graphs/graph.h"

namespace reprise {

// Where memory of the arena is used, from node `first` to node `last`, both included.
struct Placement {
  ValueId value;            // absent: scratch of node `first`
  std::int64_t offset = 0;  // a multiple of 64
  std::int64_t bytes = 0;
  std::int32_t first = 0;
  std::int32_t last = 0;
};

struct NodePlan {
  std::string implementation;
  std::int64_t scratch_bytes = 0;
  std::int64_t scratch_offset = 0;  // into the arena
};

struct GraphPlan {
  std::vector<NodePlan> nodes;        // one per node of the graph
  std::vector<Placement> placements;  // activations and scratch
  std::int64_t arena_bytes = 0;
  std::int64_t activation_bytes = 0;  // largest sum of live activations
  std::int64_t scratch_bytes = 0;     // largest scratch of a node
};

// Chooses implementations and places memory. Activations whose lifetimes overlap never share bytes.
// kRetain: every activation keeps memory of its own, for dumps.
enum class Reuse : std::uint8_t { kReuse, kRetain };
GraphPlan make_plan(const Graph& graph, const OpTable& ops, int threads, Reuse reuse);

// Packs placements (their offsets are written) and returns the size of the arena. Exposed for
// tests.
std::int64_t place(std::vector<Placement>& placements);

}  // namespace reprise
