#include "graphs/ir/kernel_args.h"

namespace reprise {

EmbeddingForwardArgs kernel_args(const node::EmbeddingForward& n, const OperandReader& r) {
  return {.ids = r.view(n.ids), .table = r.view(n.table), .y = r.view(n.y)};
}

RmsNormForwardArgs kernel_args(const node::RmsNormForward& n, const OperandReader& r) {
  return {.x = r.view(n.x),
          .weight = r.view(n.weight),
          .eps = n.eps,
          .y = r.view(n.y),
          .inv_rms = r.view(n.inv_rms)};
}

RmsNormBackwardArgs kernel_args(const node::RmsNormBackward& n, const OperandReader& r) {
  return {.grad_y = r.view(n.grad_y),
          .x = r.view(n.x),
          .weight = r.view(n.weight),
          .inv_rms = r.view(n.inv_rms),
          .grad_x = r.view(n.grad_x),
          .mode = n.mode};
}

LinearNf4ForwardArgs kernel_args(const node::LinearNf4Forward& n, const OperandReader& r) {
  LinearNf4ForwardArgs args{.compute = n.compute,
                            .x = r.view(n.x),
                            .weight = r.nf4(n.weight),
                            .cached_weight = r.view(n.cached_weight),
                            .bias = r.view(n.bias),
                            .lora = {},
                            .y = r.view(n.y),
                            .mode = OutputMode::kOverwrite,
                            .scratch = {}};
  if (n.lora.a.present()) {
    args.lora = {.a = r.view(n.lora.a),
                 .b = r.view(n.lora.b),
                 .u = r.view(n.u),
                 .scale = n.lora.scale,
                 .dropout = r.dropout(n.lora)};
  }
  return args;
}

LinearNf4BackwardArgs kernel_args(const node::LinearNf4Backward& n, const OperandReader& r) {
  LinearNf4BackwardArgs args{.compute = n.compute,
                             .grad_y = r.view(n.grad_y),
                             .weight = r.nf4(n.weight),
                             .cached_weight = r.view(n.cached_weight),
                             .lora = {},
                             .grad_x = r.view(n.grad_x),
                             .mode = n.mode,
                             .scratch = {}};
  if (n.lora.a.present()) {
    args.lora = {.a = r.view(n.lora.a), .grad_u = r.view(n.grad_u), .dropout = r.dropout(n.lora)};
  }
  return args;
}

LoraBackwardArgs kernel_args(const node::LoraBackward& n, const OperandReader& r) {
  return {.compute = n.compute,
          .grad_y = r.view(n.grad_y),
          .x = r.view(n.x),
          .u = r.view(n.u),
          .a = r.view(n.lora.a),
          .b = r.view(n.lora.b),
          .scale = n.lora.scale,
          .dropout = r.dropout(n.lora),
          .grad_u = r.view(n.grad_u),
          .grad_a = r.view(n.grad_a),
          .grad_b = r.view(n.grad_b),
          .mode = n.mode,
          .scratch = {}};
}

RopeArgs kernel_args(const node::Rope& n, const OperandReader& r) {
  return {.x = r.view(n.x),
          .table = r.view(n.table),
          .heads = n.heads,
          .direction = n.direction,
          .y = r.view(n.y)};
}

AttentionForwardArgs kernel_args(const node::AttentionForward& n, const OperandReader& r) {
  return {.compute = n.compute,
          .shape = n.shape,
          .q = r.view(n.q),
          .k = r.view(n.k),
          .v = r.view(n.v),
          .out = r.view(n.out),
          .lse = r.view(n.lse),
          .scratch = {}};
}

AttentionBackwardArgs kernel_args(const node::AttentionBackward& n, const OperandReader& r) {
  return {.compute = n.compute,
          .shape = n.shape,
          .grad_out = r.view(n.grad_out),
          .q = r.view(n.q),
          .k = r.view(n.k),
          .v = r.view(n.v),
          .out = r.view(n.out),
          .lse = r.view(n.lse),
          .grad_q = r.view(n.grad_q),
          .grad_k = r.view(n.grad_k),
          .grad_v = r.view(n.grad_v),
          .scratch = {}};
}

SwigluForwardArgs kernel_args(const node::SwigluForward& n, const OperandReader& r) {
  return {.gate = r.view(n.gate), .up = r.view(n.up), .y = r.view(n.y)};
}

SwigluBackwardArgs kernel_args(const node::SwigluBackward& n, const OperandReader& r) {
  return {.grad_y = r.view(n.grad_y),
          .gate = r.view(n.gate),
          .up = r.view(n.up),
          .grad_gate = r.view(n.grad_gate),
          .grad_up = r.view(n.grad_up)};
}

ResidualArgs kernel_args(const node::Residual& n, const OperandReader& r) {
  return {.a = r.view(n.a), .b = r.view(n.b), .y = r.view(n.y)};
}

CrossEntropyArgs kernel_args(const node::CrossEntropy& n, const OperandReader& r) {
  return {.compute = n.compute,
          .x = r.view(n.x),
          .weight = r.view(n.weight),
          .labels = r.view(n.labels),
          .params = r.params(n.params),
          .loss = r.view(n.loss),
          .nll = r.view(n.nll),
          .grad_x = r.view(n.grad_x),
          .scratch = {}};
}

LmHeadArgs kernel_args(const node::LmHead& n, const OperandReader& r) {
  return {.compute = n.compute,
          .x = r.view(n.x),
          .weight = r.view(n.weight),
          .logits = r.view(n.logits),
          .scratch = {}};
}

GradNormArgs kernel_args(const node::GradNorm& n, const OperandReader& r) {
  return {.grads = r.view(n.grads), .norm = r.view(n.norm), .scratch = {}};
}

ClipArgs kernel_args(const node::Clip& n, const OperandReader& r) {
  return {.norm = r.view(n.norm),
          .loss = r.view(n.loss),
          .max_norm = n.max_norm,
          .decision = r.view(n.decision)};
}

AdamWArgs kernel_args(const node::AdamW& n, const OperandReader& r) {
  return {.params = r.view(n.params),
          .grads = r.view(n.grads),
          .exp_avg = r.view(n.exp_avg),
          .exp_avg_sq = r.view(n.exp_avg_sq),
          .decision = r.view(n.decision),
          .step_params = r.params(n.step_params),
          .beta1 = n.beta1,
          .beta2 = n.beta2,
          .eps = n.eps,
          .weight_decay = n.weight_decay};
}

FillArgs kernel_args(const node::Fill& n, const OperandReader& r) {
  return {.x = r.view(n.x), .value = n.value};
}

std::string describe_node(const Graph& graph, std::size_t index) {
  const Node& node = graph.nodes[index];
  std::string text;
  if (node.layer >= 0) text += "layers." + std::to_string(node.layer) + ".";
  if (node.projection != Projection::kNone) text += name_of(node.projection);
  if (!text.empty()) text += " ";
  return text + op_name(node.op) + " (node " + std::to_string(index) + ")";
}

}  // namespace reprise
