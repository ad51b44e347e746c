// Graphs: what they hold, for who asks, and their text.
#include <fstream>
#include <map>

#include "kernels/simt/runtime_stream.h"

namespace reprise::simt {
namespace {

cudaGraphNodeType type_of(const CUgraphNode_st& node) {
  if (std::holds_alternative<KernelWork>(node.work)) return cudaGraphNodeTypeKernel;
  return std::holds_alternative<CopyWork>(node.work) ? cudaGraphNodeTypeMemcpy
                                                     : cudaGraphNodeTypeMemset;
}

std::string label(const CUgraphNode_st& node) {
  if (const auto* kernel = std::get_if<KernelWork>(&node.work)) return kernel->kernel->name;
  if (const auto* copy = std::get_if<CopyWork>(&node.work)) {
    return "copy " + std::to_string(copy->bytes) + " bytes";
  }
  return "fill " + std::to_string(std::get<FillWork>(node.work).bytes) + " bytes";
}

cudaError_t list_nodes(const CUgraph_st& graph, cudaGraphNode_t* nodes, std::size_t& count) {
  const std::size_t room = nodes == nullptr ? 0 : count;
  for (std::size_t i = 0; i < room; ++i) {
    nodes[i] = i < graph.nodes.size() ? graph.nodes[i].get() : nullptr;
  }
  if (nodes == nullptr || room > graph.nodes.size()) count = graph.nodes.size();
  return cudaSuccess;
}

cudaError_t kernel_parameters(CUgraphNode_st& node, cudaKernelNodeParams& out) {
  auto* const kernel = std::get_if<KernelWork>(&node.work);
  if (kernel == nullptr) return refuse(cudaErrorInvalidValue, "the node is no kernel");
  node.parameters.clear();
  for (auto& argument : kernel->arguments) node.parameters.push_back(argument.data());
  out = {};
  out.func = const_cast<void*>(kernel->function);
  out.gridDim = kernel->grid;
  out.blockDim = kernel->block;
  out.sharedMemBytes = static_cast<unsigned>(kernel->dynamic_bytes);
  out.kernelParams = node.parameters.data();
  return cudaSuccess;
}

cudaError_t print_dot(const CUgraph_st& graph, const char* path) {
  std::ofstream out(path);
  std::map<const CUgraphNode_st*, std::size_t> number;
  out << "digraph graph_1 {\n";
  for (const auto& node : graph.nodes) {
    const std::size_t mine = number.size();
    number[node.get()] = mine;
    out << "  node_" << mine << " [label=\"" << label(*node) << "\"];\n";
    for (const CUgraphNode_st* before : node->after) {
      out << "  node_" << number.at(before) << " -> node_" << mine << ";\n";
    }
  }
  out << "}\n";
  out.flush();
  if (out) return cudaSuccess;
  return refuse(cudaErrorOperatingSystem, std::string(path) + ": cannot be written");
}

}  // namespace
}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return entry([&] {
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return entry([&] { return list_nodes(*graph, nodes, *count); });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return entry([&] {
    *type = type_of(*node);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* parameters) {
  return entry([&] { return kernel_parameters(*node, *parameters); });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  return entry([&] { return print_dot(*graph, path); });
}
}
