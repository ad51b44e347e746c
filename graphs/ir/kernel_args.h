// From a node to the arguments of its kernel: the one place where operands become views. Planning,
// verifying, eager runs and capture all go through here, so they cannot disagree.
#pragma once

#include <utility>
#include <vector>

#include "reprise/graphs/graph.h"

namespace reprise {

// Where each value lies, by value index. Null pointers describe a graph before it has memory.
struct Addresses {
  explicit Addresses(const Graph& graph)
      : data(graph.values.size(), nullptr), nf4(graph.values.size(), Nf4View{}) {}
  std::vector<void*> data;
  std::vector<Nf4View> nf4;  // only for kFrozenNf4
};

// Reads operands of one graph at given addresses.
class OperandReader {
 public:
  OperandReader(const Graph& graph, const Addresses& addresses)
      : graph_(graph), addresses_(addresses) {}

  View view(ValueId id) const {
    if (!id.present()) return {};
    const Value& value = graph_.value(id);
    return {addresses_.data[static_cast<std::size_t>(id.index)], value.dtype, value.dims};
  }
  Nf4View nf4(ValueId id) const {
    const Nf4View& bound = addresses_.nf4[static_cast<std::size_t>(id.index)];
    if (bound.packed != nullptr) return bound;
    const Value& value = graph_.value(id);
    return {nullptr, nullptr, value.dims[0], value.dims[1], value.nf4_block_size, value.nf4_order};
  }
  const StepParams* params(ValueId id) const { return view(id).as<const StepParams>(); }
  Dropout dropout(const node::LoraTerm& term) const {
    return {term.dropout, term.site, params(term.params)};
  }

 private:
  const Graph& graph_;
  const Addresses& addresses_;
};

EmbeddingForwardArgs kernel_args(const node::EmbeddingForward& n, const OperandReader& r);
RmsNormForwardArgs kernel_args(const node::RmsNormForward& n, const OperandReader& r);
RmsNormBackwardArgs kernel_args(const node::RmsNormBackward& n, const OperandReader& r);
LinearNf4ForwardArgs kernel_args(const node::LinearNf4Forward& n, const OperandReader& r);
LinearNf4BackwardArgs kernel_args(const node::LinearNf4Backward& n, const OperandReader& r);
LoraBackwardArgs kernel_args(const node::LoraBackward& n, const OperandReader& r);
RopeArgs kernel_args(const node::Rope& n, const OperandReader& r);
AttentionForwardArgs kernel_args(const node::AttentionForward& n, const OperandReader& r);
AttentionBackwardArgs kernel_args(const node::AttentionBackward& n, const OperandReader& r);
SwigluForwardArgs kernel_args(const node::SwigluForward& n, const OperandReader& r);
SwigluBackwardArgs kernel_args(const node::SwigluBackward& n, const OperandReader& r);
ResidualArgs kernel_args(const node::Residual& n, const OperandReader& r);
CrossEntropyArgs kernel_args(const node::CrossEntropy& n, const OperandReader& r);
LmHeadArgs kernel_args(const node::LmHead& n, const OperandReader& r);
GradNormArgs kernel_args(const node::GradNorm& n, const OperandReader& r);
ClipArgs kernel_args(const node::Clip& n, const OperandReader& r);
AdamWArgs kernel_args(const node::AdamW& n, const OperandReader& r);
FillArgs kernel_args(const node::Fill& n, const OperandReader& r);

inline const Implementations<EmbeddingForwardArgs>& list_for(const OpTable& ops,
                                                             const EmbeddingForwardArgs&) {
  return ops.embedding_forward;
}
inline const Implementations<RmsNormForwardArgs>& list_for(const OpTable& ops,
                                                           const RmsNormForwardArgs&) {
  return ops.rms_norm_forward;
}
inline const Implementations<RmsNormBackwardArgs>& list_for(const OpTable& ops,
                                                            const RmsNormBackwardArgs&) {
  return ops.rms_norm_backward;
}
inline const Implementations<LinearNf4ForwardArgs>& list_for(const OpTable& ops,
                                                             const LinearNf4ForwardArgs&) {
  return ops.linear_nf4_forward;
}
inline const Implementations<LinearNf4BackwardArgs>& list_for(const OpTable& ops,
                                                              const LinearNf4BackwardArgs&) {
  return ops.linear_nf4_backward;
}
inline const Implementations<LoraBackwardArgs>& list_for(const OpTable& ops,
                                                         const LoraBackwardArgs&) {
  return ops.lora_backward;
}
inline const Implementations<RopeArgs>& list_for(const OpTable& ops, const RopeArgs&) {
  return ops.rope;
}
inline const Implementations<AttentionForwardArgs>& list_for(const OpTable& ops,
                                                             const AttentionForwardArgs&) {
  return ops.attention_forward;
}
inline const Implementations<AttentionBackwardArgs>& list_for(const OpTable& ops,
                                                              const AttentionBackwardArgs&) {
  return ops.attention_backward;
}
inline const Implementations<SwigluForwardArgs>& list_for(const OpTable& ops,
                                                          const SwigluForwardArgs&) {
  return ops.swiglu_forward;
}
inline const Implementations<SwigluBackwardArgs>& list_for(const OpTable& ops,
                                                           const SwigluBackwardArgs&) {
  return ops.swiglu_backward;
}
inline const Implementations<ResidualArgs>& list_for(const OpTable& ops, const ResidualArgs&) {
  return ops.residual;
}
inline const Implementations<CrossEntropyArgs>& list_for(const OpTable& ops,
                                                         const CrossEntropyArgs&) {
  return ops.cross_entropy;
}
inline const Implementations<LmHeadArgs>& list_for(const OpTable& ops, const LmHeadArgs&) {
  return ops.lm_head;
}
inline const Implementations<GradNormArgs>& list_for(const OpTable& ops, const GradNormArgs&) {
  return ops.grad_norm;
}
inline const Implementations<ClipArgs>& list_for(const OpTable& ops, const ClipArgs&) {
  return ops.clip;
}
inline const Implementations<AdamWArgs>& list_for(const OpTable& ops, const AdamWArgs&) {
  return ops.adamw;
}
inline const Implementations<FillArgs>& list_for(const OpTable& ops, const FillArgs&) {
  return ops.fill;
}

// Calls visit(args) with the kernel arguments of `node`.
template <class Visit>
decltype(auto) with_args(const Node& node, const OperandReader& reader, Visit&& visit) {
  return std::visit([&](const auto& op) { return visit(kernel_args(op, reader)); }, node.op);
}

template <class Args>
void set_scratch(Args& args, const Scratch& scratch) {
  if constexpr (requires { args.scratch; }) args.scratch = scratch;
}

// "layers.3.q_proj linear_nf4_forward (node 41)"
std::string describe_node(const Graph& graph, std::size_t index);

}  // namespace reprise
