// Runs a planned graph: eagerly, node by node, or captured once and replayed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reprise/graphs/plan.h"
#include "reprise/runtime/backend.h"

namespace reprise {

// Memory of the values that are not activations.
struct Bindings {
  std::vector<void*> memory;  // by value index; null for activations, parts and NF4 weights
  std::vector<Nf4View> nf4;   // by value index; only for kFrozenNf4

  explicit Bindings(const Graph& graph)
      : memory(graph.values.size(), nullptr), nf4(graph.values.size(), Nf4View{}) {}
  void bind(ValueId id, void* data) { memory.at(static_cast<std::size_t>(id.index)) = data; }
  void bind(ValueId id, const Nf4View& weight) {
    nf4.at(static_cast<std::size_t>(id.index)) = weight;
  }
};

// A graph whose every address is known.
class BoundGraph {
 public:
  // `graph` must outlive this and not be changed. `arena` has at least plan.arena_bytes. Throws
  // Error naming a value that has no memory.
  BoundGraph(const Graph& graph, GraphPlan plan, Bindings bindings, std::byte* arena,
             Backend& backend);

  ~BoundGraph();
  BoundGraph(BoundGraph&&) noexcept;
  BoundGraph& operator=(BoundGraph&&) noexcept;

  // Chooses, binds and runs each node in turn. `after` (may be empty) is called after each node.
  void run_eager(const std::function<void(std::size_t node)>& after = {});

  // Where a value is, in the memory of the backend.
  View view(ValueId id) const;

  const Graph& graph() const;
  const GraphPlan& plan() const;
  Backend& backend() const;
  // Of every address, implementation, operand, shape and constant: what a capture depends on.
  std::uint64_t fingerprint() const;

 private:
  friend class CapturedGraph;
  struct State;
  std::unique_ptr<State> state_;
};

// A captured graph: on the CPU the list of bound calls, on a CUDA device a CUDA Graph. Replaying
// allocates nothing and chooses nothing; only oneDNN, which computes --linear dequant and cached on
// CPUs, allocates within its own calls.
class CapturedGraph {
 public:
  explicit CapturedGraph(const BoundGraph& graph);
  ~CapturedGraph();
  CapturedGraph(CapturedGraph&&) noexcept;
  CapturedGraph& operator=(CapturedGraph&&) noexcept;

  // Runs what was captured. Throws Error when `graph` is not that: another address, implementation,
  // operand, shape or constant.
  void replay(const BoundGraph& graph) const;

  // Calls that a replay makes: one for each node of our graph.
  std::size_t nodes() const;
  // What the device's driver says the captured graph consists of; empty on CPUs.
  const std::vector<CapturedNode>& device_nodes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The bytes of `view`, which is in the memory of `backend`, as FP32 on the host. F32 and BF16 only.
Tensor host_copy(Backend& backend, const View& view, const std::string& name);

// Name of the first node whose outputs hold a NaN or infinity when the graph is run eagerly again,
// "layers.3.q_proj linear_nf4_forward (node 41)", or "" if none does.
std::string first_not_finite_node(BoundGraph& graph);

}  // namespace reprise
