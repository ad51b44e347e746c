#include "runtime/cuda/graph_capture.h"

#include <string>
#include <vector>

namespace reprise::cuda {
namespace {

const char* name_of(cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeKernel:
      return "kernel";
    case cudaGraphNodeTypeMemcpy:
      return "memcpy";
    case cudaGraphNodeTypeMemset:
      return "memset";
    case cudaGraphNodeTypeHost:
      return "host";
    case cudaGraphNodeTypeEmpty:
      return "empty";
    case cudaGraphNodeTypeMemAlloc:
      return "memory allocation";
    case cudaGraphNodeTypeMemFree:
      return "memory release";
    default:
      return "other";
  }
}

CapturedNode describe(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  cuda_check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  CapturedNode described{.type = name_of(type), .name = {}};
  if (type == cudaGraphNodeTypeKernel) {
    cudaKernelNodeParams params{};
    cuda_check(cudaGraphKernelNodeGetParams(node, &params), "cudaGraphKernelNodeGetParams");
    const char* name = nullptr;
    cuda_check(cudaFuncGetName(&name, params.func), "cudaFuncGetName");
    described.name = name;
  }
  return described;
}

std::vector<CapturedNode> list_nodes(cudaGraph_t graph) {
  std::size_t count = 0;
  cuda_check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> handles(count);
  if (count > 0) cuda_check(cudaGraphGetNodes(graph, handles.data(), &count), "cudaGraphGetNodes");
  std::vector<CapturedNode> nodes;
  for (const cudaGraphNode_t handle : handles) nodes.push_back(describe(handle));
  return nodes;
}

void require_fixed_work(const std::vector<CapturedNode>& nodes) {
  require(!nodes.empty(), "capturing the step recorded nothing: its kernels went elsewhere");
  for (const CapturedNode& node : nodes) {
    require(!node.type.starts_with("memory "), "the captured step has a node of type " + node.type +
                                                   "; all memory must be there before");
    require(node.type != "host", "the captured step calls back to the host");
  }
}

class GraphWork final : public CapturedWork {
 public:
  GraphWork(cudaStream_t stream, GraphExec exec, std::vector<CapturedNode> nodes)
      : stream_(stream), exec_(std::move(exec)), nodes_(std::move(nodes)) {}

  void replay() override { cuda_check(cudaGraphLaunch(exec_.get(), stream_), "cudaGraphLaunch"); }
  const std::vector<CapturedNode>& nodes() const override { return nodes_; }

 private:
  cudaStream_t stream_;
  GraphExec exec_;
  std::vector<CapturedNode> nodes_;
};

// Ends a capture that failed, so that the stream can be used again, and forgets its error.
void abandon_capture(cudaStream_t stream) {
  cudaGraph_t partial = nullptr;
  static_cast<void>(cudaStreamEndCapture(stream, &partial));
  const Graph owner(partial);
  static_cast<void>(cudaGetLastError());
}

Graph record(cudaStream_t stream, const std::function<void()>& work) {
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  try {
    work();
  } catch (...) {
    abandon_capture(stream);
    throw;
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (ended != cudaSuccess) static_cast<void>(cudaGetLastError());
  cuda_check(ended, "cudaStreamEndCapture");
  return Graph(graph);
}

}  // namespace

std::unique_ptr<CapturedWork> capture_graph(cudaStream_t stream,
                                            const std::function<void()>& work) {
  const Graph graph = record(stream, work);
  std::vector<CapturedNode> nodes = list_nodes(graph.get());
  require_fixed_work(nodes);
  cudaGraphExec_t exec = nullptr;
  cuda_check(cudaGraphInstantiate(&exec, graph.get(), 0), "cudaGraphInstantiate");
  return std::make_unique<GraphWork>(stream, GraphExec(exec), std::move(nodes));
}

}  // namespace reprise::cuda
