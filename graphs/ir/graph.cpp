// Values and nodes of a graph, and what each op reads and writes.
#include "reprise/graphs/graph.h"

#include <utility>

namespace reprise {

ValueId Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return {static_cast<std::int32_t>(values.size()) - 1};
}

ValueId Graph::add_part(ValueId parent, std::string part_name, Dims dims,
                        std::int64_t offset_bytes) {
  const Value& whole = value(parent);
  return add_value({.name = std::move(part_name),
                    .dtype = whole.dtype,
                    .dims = dims,
                    .kind = whole.kind,
                    .parent = parent,
                    .offset = offset_bytes});
}

ValueId Graph::storage(ValueId id) const {
  while (value(id).parent.present()) id = value(id).parent;
  return id;
}

const char* name_of(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kLoss:
      return "loss";
    case Pass::kBackward:
      return "backward";
    case Pass::kUpdate:
      return "update";
  }
  return "?";
}

namespace {

Access access_of(OutputMode mode) {
  return mode == OutputMode::kOverwrite ? Access::kWrite : Access::kReadWrite;
}

// One function per op: its name and its operands, side by side.
struct Describe {
  std::vector<Operand>* list = nullptr;  // null: only the name is wanted

  void read(const char* role, ValueId id) const { add(role, id, Access::kRead); }
  void write(const char* role, ValueId id) const { add(role, id, Access::kWrite); }
  void add(const char* role, ValueId id, Access access) const {
    if (list != nullptr && id.present()) list->push_back({role, id, access});
  }
  void lora(const node::LoraTerm& term) const {
    read("lora_a", term.a);
    read("lora_b", term.b);
    read("step_params", term.params);
  }

  const char* operator()(const node::EmbeddingForward& n) const {
    read("ids", n.ids);
    read("table", n.table);
    write("y", n.y);
    return "embedding_forward";
  }
  const char* operator()(const node::RmsNormForward& n) const {
    read("x", n.x);
    read("weight", n.weight);
    write("y", n.y);
    write("inv_rms", n.inv_rms);
    return "rms_norm_forward";
  }
  const char* operator()(const node::RmsNormBackward& n) const {
    read("grad_y", n.grad_y);
    read("x", n.x);
    read("weight", n.weight);
    read("inv_rms", n.inv_rms);
    add("grad_x", n.grad_x, access_of(n.mode));
    return "rms_norm_backward";
  }
  const char* operator()(const node::LinearNf4Forward& n) const {
    read("x", n.x);
    read("weight", n.weight);
    read("cached_weight", n.cached_weight);
    read("bias", n.bias);
    lora(n.lora);
    write("u", n.u);
    write("y", n.y);
    return "linear_nf4_forward";
  }
  const char* operator()(const node::LinearNf4Backward& n) const {
    read("grad_y", n.grad_y);
    read("weight", n.weight);
    read("cached_weight", n.cached_weight);
    read("lora_a", n.lora.a);
    read("grad_u", n.grad_u);
    read("step_params", n.lora.params);
    add("grad_x", n.grad_x, access_of(n.mode));
    return "linear_nf4_backward";
  }
  const char* operator()(const node::LoraBackward& n) const {
    read("grad_y", n.grad_y);
    read("x", n.x);
    read("u", n.u);
    lora(n.lora);
    write("grad_u", n.grad_u);
    add("grad_a", n.grad_a, access_of(n.mode));
    add("grad_b", n.grad_b, access_of(n.mode));
    return "lora_backward";
  }
  const char* operator()(const node::Rope& n) const {
    if (n.x == n.y) {
      add("x", n.x, Access::kReadWrite);
    } else {
      read("x", n.x);
      write("y", n.y);
    }
    read("table", n.table);
    return n.direction == RopeDirection::kForward ? "rope_forward" : "rope_backward";
  }
  const char* operator()(const node::AttentionForward& n) const {
    read("q", n.q);
    read("k", n.k);
    read("v", n.v);
    write("out", n.out);
    write("lse", n.lse);
    return "attention_forward";
  }
  const char* operator()(const node::AttentionBackward& n) const {
    read("grad_out", n.grad_out);
    read("q", n.q);
    read("k", n.k);
    read("v", n.v);
    read("out", n.out);
    read("lse", n.lse);
    write("grad_q", n.grad_q);
    write("grad_k", n.grad_k);
    write("grad_v", n.grad_v);
    return "attention_backward";
  }
  const char* operator()(const node::SwigluForward& n) const {
    read("gate", n.gate);
    read("up", n.up);
    write("y", n.y);
    return "swiglu_forward";
  }
  const char* operator()(const node::SwigluBackward& n) const {
    read("grad_y", n.grad_y);
    read("gate", n.gate);
    read("up", n.up);
    write("grad_gate", n.grad_gate);
    write("grad_up", n.grad_up);
    return "swiglu_backward";
  }
  const char* operator()(const node::Residual& n) const {
    read("a", n.a);
    read("b", n.b);
    write("y", n.y);
    return "residual";
  }
  const char* operator()(const node::CrossEntropy& n) const {
    read("x", n.x);
    read("weight", n.weight);
    read("labels", n.labels);
    read("step_params", n.params);
    write("loss", n.loss);
    write("nll", n.nll);
    write("grad_x", n.grad_x);
    return "cross_entropy";
  }
  const char* operator()(const node::LmHead& n) const {
    read("x", n.x);
    read("weight", n.weight);
    write("logits", n.logits);
    return "lm_head";
  }
  const char* operator()(const node::GradNorm& n) const {
    read("grads", n.grads);
    write("norm", n.norm);
    return "grad_norm";
  }
  const char* operator()(const node::Clip& n) const {
    read("norm", n.norm);
    read("loss", n.loss);
    write("decision", n.decision);
    return "clip";
  }
  const char* operator()(const node::AdamW& n) const {
    add("params", n.params, Access::kReadWrite);
    read("grads", n.grads);
    add("exp_avg", n.exp_avg, Access::kReadWrite);
    add("exp_avg_sq", n.exp_avg_sq, Access::kReadWrite);
    read("decision", n.decision);
    read("step_params", n.step_params);
    return "adamw";
  }
  const char* operator()(const node::Fill& n) const {
    write("x", n.x);
    return "fill";
  }
};

}  // namespace

const char* op_name(const Op& op) { return std::visit(Describe{}, op); }

std::vector<Operand> operands(const Op& op) {
  std::vector<Operand> list;
  std::visit(Describe{&list}, op);
  return list;
}

}  // namespace reprise
