// Binding a planned graph to memory, running it eagerly, capturing and replaying it.
#include "reprise/graphs/executor.h"

#include <algorithm>
#include <utility>

#include "graphs/ir/attributes.h"
#include "graphs/ir/kernel_args.h"
#include "reprise/kernels/float16.h"

namespace reprise {

struct BoundGraph::State {
  const Graph* graph;
  GraphPlan plan;
  Addresses addresses;
  std::byte* arena;
  Backend* backend;
  std::uint64_t fingerprint;

  // Calls visit(args, implementation) with everything that node `index` runs with.
  template <class Visit>
  void with_call(std::size_t index, Visit&& visit) const {
    const OperandReader reader(*graph, addresses);
    const NodePlan& node = plan.nodes[index];
    with_args(graph->nodes[index], reader, [&](auto args) {
      const auto& list = list_for(backend->ops(), args);
      const auto& choice = select(list, args, op_name(graph->nodes[index].op));
      if (choice.name != node.implementation) {
        throw Error(describe_node(*graph, index) + " was planned for " + node.implementation +
                    " but " + choice.name + " would run");
      }
      if (node.scratch_bytes > 0) {
        set_scratch(args, {arena + node.scratch_offset, node.scratch_bytes});
      }
      visit(args, choice);
    });
  }
};

namespace {

Addresses resolve(const Graph& graph, const GraphPlan& plan, const Bindings& bindings,
                  std::byte* arena) {
  Addresses addresses(graph);
  addresses.data = bindings.memory;
  addresses.nf4 = bindings.nf4;
  for (const Placement& p : plan.placements) {
    if (p.value.present()) {
      addresses.data[static_cast<std::size_t>(p.value.index)] = arena + p.offset;
    }
  }
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (!value.parent.present()) continue;
    // Parents come before their parts, so the parent's address is final.
    auto* parent =
        static_cast<std::byte*>(addresses.data[static_cast<std::size_t>(value.parent.index)]);
    if (parent != nullptr) addresses.data[i] = parent + value.offset;
  }
  return addresses;
}

void require_bound(const Graph& graph, const Addresses& addresses) {
  for (const Node& node : graph.nodes) {
    for (const Operand& operand : operands(node.op)) {
      const auto index = static_cast<std::size_t>(operand.value.index);
      const Value& value = graph.values[index];
      if (value.kind == ValueKind::kFrozenNf4) {
        const Nf4View& weight = addresses.nf4[index];
        if (weight.packed == nullptr) throw Error("graph value " + value.name + " has no weight");
        if (weight.n != value.dims[0] || weight.k != value.dims[1]) {
          throw Error("graph value " + value.name + " is bound to a weight of another shape");
        }
      } else if (addresses.data[index] == nullptr) {
        throw Error("graph value " + value.name + " has no memory");
      }
    }
  }
}

// FNV-1a over whatever identifies a capture.
class Fingerprint {
 public:
  void add(const void* bytes, std::size_t count) {
    const auto* p = static_cast<const unsigned char*>(bytes);
    for (std::size_t i = 0; i < count; ++i) hash_ = (hash_ ^ p[i]) * 0x100000001b3u;
  }
  template <class T>
  void add(const T& value) {
    add(&value, sizeof value);
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

void add_nodes(Fingerprint& print, const Graph& graph) {
  for (const Node& node : graph.nodes) {
    print.add(node.op.index());
    for (const Operand& operand : operands(node.op)) {
      print.add(operand.value.index);
      const Value& value = graph.value(operand.value);
      print.add(value.dtype);
      for (int axis = 0; axis < value.dims.rank(); ++axis) print.add(value.dims[axis]);
    }
    for (const Attribute& attribute : attributes(node.op)) print.add(attribute.value);
  }
}

void add_memory(Fingerprint& print, const GraphPlan& plan, const Addresses& addresses,
                const std::byte* arena) {
  print.add(arena);
  for (const void* address : addresses.data) print.add(address);
  for (const Nf4View& weight : addresses.nf4) {
    print.add(weight.packed);
    print.add(weight.absmax);
  }
  for (const NodePlan& node : plan.nodes) {
    print.add(node.implementation.data(), node.implementation.size());
    print.add(node.scratch_offset);
  }
}

}  // namespace

BoundGraph::BoundGraph(const Graph& graph, GraphPlan plan, Bindings bindings, std::byte* arena,
                       Backend& backend) {
  require(plan.nodes.size() == graph.nodes.size(), "the plan is of another graph");
  Addresses addresses = resolve(graph, plan, bindings, arena);
  require_bound(graph, addresses);
  Fingerprint print;
  add_memory(print, plan, addresses, arena);
  print.add<const Backend*>(&backend);
  add_nodes(print, graph);
  state_ = std::make_unique<State>(
      State{&graph, std::move(plan), std::move(addresses), arena, &backend, print.value()});
}

BoundGraph::~BoundGraph() = default;
BoundGraph::BoundGraph(BoundGraph&&) noexcept = default;
BoundGraph& BoundGraph::operator=(BoundGraph&&) noexcept = default;

const Graph& BoundGraph::graph() const { return *state_->graph; }
const GraphPlan& BoundGraph::plan() const { return state_->plan; }
Backend& BoundGraph::backend() const { return *state_->backend; }

View BoundGraph::view(ValueId id) const {
  return OperandReader(*state_->graph, state_->addresses).view(id);
}

void BoundGraph::run_eager(const std::function<void(std::size_t node)>& after) {
  const Execution execution = state_->backend->execution();
  for (std::size_t i = 0; i < state_->graph->nodes.size(); ++i) {
    state_->with_call(i, [&](const auto& args, const auto& implementation) {
      implementation.run(args, execution);
    });
    if (after) after(i);
  }
}

std::uint64_t BoundGraph::fingerprint() const { return state_->fingerprint; }

struct CapturedGraph::State {
  std::vector<std::function<void(const Execution&)>> calls;
  std::unique_ptr<CapturedWork> device;  // null: the calls are what is replayed
  Backend* backend = nullptr;
  std::uint64_t fingerprint = 0;

  void run_calls() const {
    const Execution execution = backend->execution();
    for (const auto& call : calls) call(execution);
  }
};

CapturedGraph::CapturedGraph(const BoundGraph& graph) : state_(std::make_unique<State>()) {
  state_->backend = graph.state_->backend;
  state_->fingerprint = graph.fingerprint();
  for (std::size_t i = 0; i < graph.graph().nodes.size(); ++i) {
    graph.state_->with_call(i, [&](const auto& args, const auto& implementation) {
      state_->calls.emplace_back(
          [args, run = implementation.run](const Execution& execution) { run(args, execution); });
    });
  }
  state_->device = state_->backend->capture([&] { state_->run_calls(); });
}

CapturedGraph::~CapturedGraph() = default;
CapturedGraph::CapturedGraph(CapturedGraph&&) noexcept = default;
CapturedGraph& CapturedGraph::operator=(CapturedGraph&&) noexcept = default;

std::size_t CapturedGraph::nodes() const { return state_->calls.size(); }

const std::vector<CapturedNode>& CapturedGraph::device_nodes() const {
  static const std::vector<CapturedNode> kNone;
  return state_->device ? state_->device->nodes() : kNone;
}

void CapturedGraph::replay(const BoundGraph& graph) const {
  if (graph.fingerprint() != state_->fingerprint) {
    throw Error("the captured graph is stale: " + graph.graph().name +
                " has other memory, implementations or nodes than when it was captured");
  }
  if (state_->device) {
    state_->device->replay();
  } else {
    state_->run_calls();
  }
}

Tensor host_copy(Backend& backend, const View& view, const std::string& name) {
  Tensor tensor = make_tensor(DType::kF32, view.dims, name);
  auto* out = tensor.view().as<float>();
  if (view.dtype == DType::kF32) {
    backend.download(out, view.data, view.bytes());
    return tensor;
  }
  require(view.dtype == DType::kBF16, "only F32 and BF16 values have a copy on the host");
  std::vector<BFloat16> values(static_cast<std::size_t>(view.count()));
  backend.download(values.data(), view.data, view.bytes());
  std::transform(values.begin(), values.end(), out, [](BFloat16 value) { return to_float(value); });
  return tensor;
}

namespace {

bool is_finite(Backend& backend, const View& view) {
  if (view.dtype != DType::kF32 && view.dtype != DType::kBF16) return true;
  const Tensor values = host_copy(backend, view, "values to be searched for NaN");
  return first_not_finite(values.view().as<float>(), view.count()) < 0;
}

}  // namespace

std::string first_not_finite_node(BoundGraph& graph) {
  std::string found;
  graph.run_eager([&](std::size_t index) {
    if (!found.empty()) return;
    for (const Operand& operand : operands(graph.graph().nodes[index].op)) {
      if (operand.writes() && !is_finite(graph.backend(), graph.view(operand.value))) {
        found =
            describe_node(graph.graph(), index) + ": " + graph.graph().value(operand.value).name;
        return;
      }
    }
  });
  return found;
}

}  // namespace reprise
