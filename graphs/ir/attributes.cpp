#include "graphs/ir/attributes.h"

namespace reprise {
namespace {

using List = std::vector<Attribute>;

template <class Value>
double number(Value value) {
  return static_cast<double>(value);
}

List lora_list(const node::LoraTerm& lora) {
  if (!lora.a.present()) return {};
  return {{"lora_scale", number(lora.scale)},
          {"dropout", number(lora.dropout)},
          {"dropout_site", number(lora.site)}};
}

List with_lora(List list, const node::LoraTerm& lora) {
  const List more = lora_list(lora);
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

List attention_list(ComputeType compute, const AttentionShape& shape) {
  return {{"compute", number(compute)},         {"batch", number(shape.batch)},
          {"seq", number(shape.seq)},           {"heads", number(shape.heads)},
          {"kv_heads", number(shape.kv_heads)}, {"head_dim", number(shape.head_dim)},
          {"scale", number(shape.scale)}};
}

List list(const node::EmbeddingForward&) { return {}; }
List list(const node::RmsNormForward& n) { return {{"eps", number(n.eps)}}; }
List list(const node::RmsNormBackward& n) { return {{"mode", number(n.mode)}}; }
List list(const node::LinearNf4Forward& n) {
  return with_lora({{"compute", number(n.compute)}}, n.lora);
}
List list(const node::LinearNf4Backward& n) {
  return with_lora({{"compute", number(n.compute)}, {"mode", number(n.mode)}}, n.lora);
}
List list(const node::LoraBackward& n) {
  return with_lora({{"compute", number(n.compute)}, {"mode", number(n.mode)}}, n.lora);
}
List list(const node::Rope& n) {
  return {{"heads", number(n.heads)}, {"direction", number(n.direction)}};
}
List list(const node::AttentionForward& n) { return attention_list(n.compute, n.shape); }
List list(const node::AttentionBackward& n) { return attention_list(n.compute, n.shape); }
List list(const node::SwigluForward&) { return {}; }
List list(const node::SwigluBackward&) { return {}; }
List list(const node::Residual&) { return {}; }
List list(const node::CrossEntropy& n) { return {{"compute", number(n.compute)}}; }
List list(const node::LmHead& n) { return {{"compute", number(n.compute)}}; }
List list(const node::GradNorm&) { return {}; }
List list(const node::Clip& n) { return {{"max_norm", number(n.max_norm)}}; }
List list(const node::AdamW& n) {
  return {{"beta1", number(n.beta1)},
          {"beta2", number(n.beta2)},
          {"eps", number(n.eps)},
          {"weight_decay", number(n.weight_decay)}};
}
List list(const node::Fill& n) { return {{"value", number(n.value)}}; }

}  // namespace

std::vector<Attribute> attributes(const Op& op) {
  return std::visit([](const auto& n) { return list(n); }, op);
}

}  // namespace reprise
