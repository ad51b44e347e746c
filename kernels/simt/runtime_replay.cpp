// Executable graphs. Each launch takes a random topological order, since a device may take any: an
// edge that was forgotten shows in some run.
#include <algorithm>
#include <map>

#include "kernels/simt/runtime_stream.h"
#include "kernels/simt/settings.h"

namespace reprise::simt {

struct ReplayNode {
  Work work;
  std::vector<std::size_t> after;  // sorted
};
using ReplayNodes = std::vector<ReplayNode>;

}  // namespace reprise::simt

struct CUgraphExec_st {
  // Shared with the launches that are still in a stream.
  std::shared_ptr<const reprise::simt::ReplayNodes> nodes;
};

namespace reprise::simt {
namespace {

std::shared_ptr<const ReplayNodes> flatten(const CUgraph_st& graph) {
  std::map<const CUgraphNode_st*, std::size_t> number;
  auto nodes = std::make_shared<ReplayNodes>();
  for (const auto& node : graph.nodes) {
    ReplayNode flat{node->work, {}};
    for (const CUgraphNode_st* before : node->after) flat.after.push_back(number.at(before));
    std::sort(flat.after.begin(), flat.after.end());
    number[node.get()] = nodes->size();
    nodes->push_back(std::move(flat));
  }
  return nodes;
}

cudaError_t replay(const ReplayNodes& nodes) {
  std::vector<std::size_t> missing(nodes.size());
  std::vector<std::vector<std::size_t>> before(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    for (const std::size_t earlier : nodes[i].after) before[earlier].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random_below(ready.size())], ready.back());
    const std::size_t node = ready.back();
    ready.pop_back();
    const cudaError_t status = run_work(nodes[node].work);
    if (status != cudaSuccess) return status;
    for (const std::size_t later : before[node]) {
      if (--missing[later] == 0) ready.push_back(later);
    }
  }
  return cudaSuccess;
}

const void* function_of(const Work& work) {
  const auto* const kernel = std::get_if<KernelWork>(&work);
  return kernel == nullptr ? nullptr : kernel->function;
}

cudaGraphExecUpdateResult compare(const ReplayNodes& now, const ReplayNodes& next) {
  if (now.size() != next.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].after != next[i].after) return cudaGraphExecUpdateErrorTopologyChanged;
    if (now[i].work.index() != next[i].work.index()) {
      return cudaGraphExecUpdateErrorNodeTypeChanged;
    }
    if (function_of(now[i].work) != function_of(next[i].work)) {
      return cudaGraphExecUpdateErrorFunctionChanged;
    }
  }
  return cudaGraphExecUpdateSuccess;
}

cudaError_t launch(const CUgraphExec_st& graph, cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    return invalidate(*stream->capture, cudaErrorNotSupported,
                      "a graph inside of a graph on the emulated device");
  }
  if (stream == find_stream(nullptr)) {
    const cudaError_t status = refuse_legacy_use("a graph on the legacy stream");
    if (status != cudaSuccess) return status;
  }
  return enqueue(stream, [nodes = graph.nodes] { return replay(*nodes); });
}

}  // namespace
}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  return entry([&] {
    *executable = nullptr;
    if (flags != 0) return refuse(cudaErrorNotSupported, "flags of cudaGraphInstantiate");
    const cudaError_t status = refuse_in_capture("cudaGraphInstantiate");
    if (status == cudaSuccess) *executable = new CUgraphExec_st{flatten(*graph)};
    return status;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return entry([&] {
    delete executable;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  return entry([&] {
    auto next = flatten(*graph);
    *info = {};
    info->result = compare(*executable->nodes, *next);
    if (info->result != cudaGraphExecUpdateSuccess) {
      return refuse(cudaErrorGraphExecUpdateFailure, "the graphs differ in more than arguments");
    }
    executable->nodes = std::move(next);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return entry([&] { return launch(*executable, stream); });
}
}
