// Runs a planned graph: eagerly, node by node, or captured once and replayed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reprise/graphs/plan.h"
#include "reprise/runtime/backend.h"

namespace reprise {

// Memory of the values that are not activations.
struct Bindings {
  std::vector<void*> memory;      // by value index; null for activations, parts and NF4 weights
  std::vector<Nf4View> nf4;       // by value index; only for kFrozenNf4

  explicit Bindings(const Graph& graph) : memory(graph.values.size()), nf4(graph.values.size()) {}
  void bind(ValueId id, void* data) { memory.at(static_cast<std::size_t>(id.index)) = data; }
  void bind(ValueId id, const Nf4View& weight) { nf4.at(static_cast<std::size_t>(id.index)) = weight; }
};

// A graph whose every address is known.
class BoundGraph {
 public:
  // `graph` must outlive this. `arena` has at least plan.arena_bytes. Throws Error naming a value
  // that has no memory.
  BoundGraph(const Graph& graph, GraphPlan plan, Bindings bindings, std::byte* arena,
             Backend& backend);

  // Chooses, binds and runs each node in turn. `after` (may be empty) is called after each node.
  void run_eager(const std::function<void(std::size_t node)>& after = {});

  // The view of a value, for the host.
  View view(ValueId id) const;

  const Graph& graph() const { return *graph_; }
  const GraphPlan& plan() const { return plan_; }
  Backend& backend() const { return *backend_; }
  std::byte* arena() const { return arena_; }
  const Bindings& bindings() const { return bindings_; }

 private:
  const Graph* graph_;
  GraphPlan plan_;
  Bindings bindings_;
  std::byte* arena_;
  Backend* backend_;
};

// A captured graph: on the CPU the list of bound calls, on a CUDA device a CUDA Graph. Replaying
// allocates nothing and chooses nothing.
class CapturedGraph {
 public:
  explicit CapturedGraph(const BoundGraph& graph);

  // Throws Error when `graph` is not the one that was captured any more: another arena, another
  // binding, another node count.
  void replay(const BoundGraph& graph) const;

  std::size_t size() const { return calls_.size(); }

 private:
  std::vector<std::function<void(const Execution&)>> calls_;
  std::uint64_t fingerprint_ = 0;
};

// Name of the first node whose outputs hold a NaN or infinity when the graph is run eagerly again,
// "layers.3.q_proj linear_nf4_forward (node 41)", or "" if none does.
std::string first_not_finite_node(BoundGraph& graph);

}  // namespace reprise
