// Embedding, decoder layers, final norm.
#include <cmath>

#include "graphs/build/builder.h"

namespace reprise {

void StepBuilder::forward() {
  const std::int64_t hidden = model_.hidden_size;
  ValueId h = add_activation("hidden.0", DType::kF32, {tokens(), hidden});
  add(node::EmbeddingForward{values_.input_ids, values_.embedding, h}, Pass::kForward);
  if (is_dump()) values_.dump.emplace_back("x.embed", h);
  for (std::int64_t l = 0; l < model_.num_hidden_layers; ++l) h = forward_layer(l, h);
  last_hidden_ = h;
  final_inv_rms_ = add_activation("final_inv_rms", DType::kF32, {tokens()});
  final_norm_y_ = norm(-1, h, values_.final_norm, final_inv_rms_, Pass::kForward);
  if (options_.kind == StepKind::kHidden) {
    graph_.values[static_cast<std::size_t>(final_norm_y_.index)].kind = ValueKind::kResult;
    values_.hidden = final_norm_y_;
  }
}

ValueId StepBuilder::forward_layer(std::int64_t layer, ValueId hidden) {
  LayerActivations kept;
  kept.hidden_in = hidden;
  lora_u_.emplace_back();
  forward_attention(layer, kept);
  const ValueId out = forward_mlp(layer, kept);
  kept_.push_back(kept);
  return out;
}

AttentionShape StepBuilder::attention_shape() const {
  return {.batch = options_.shape.batch,
          .seq = options_.shape.seq,
          .heads = model_.num_attention_heads,
          .kv_heads = model_.num_key_value_heads,
          .head_dim = model_.head_dim,
          .scale = 1.0f / std::sqrt(static_cast<float>(model_.head_dim))};
}

void StepBuilder::forward_attention(std::int64_t layer, LayerActivations& kept) {
  const auto l = static_cast<std::size_t>(layer);
  const std::string suffix = "." + std::to_string(layer);
  kept.inv_rms1 = add_activation("inv_rms1" + suffix, DType::kF32, {tokens()});
  kept.norm1 =
      norm(layer, kept.hidden_in, values_.layers[l].input_norm, kept.inv_rms1, Pass::kForward);
  kept.q = rope(layer, Projection::kQ, linear(layer, Projection::kQ, kept.norm1),
                RopeDirection::kForward);
  kept.k = rope(layer, Projection::kK, linear(layer, Projection::kK, kept.norm1),
                RopeDirection::kForward);
  kept.v = linear(layer, Projection::kV, kept.norm1);
  const AttentionShape shape = attention_shape();
  kept.attention = add_activation("attention" + suffix, activation(),
                                  {tokens(), model_.in_features(Projection::kO)});
  kept.lse = add_activation("lse" + suffix, DType::kF32, {shape.batch, shape.heads, shape.seq});
  add(node::AttentionForward{options_.compute, shape, kept.q, kept.k, kept.v, kept.attention,
                             kept.lse},
      Pass::kForward, layer);
  const ValueId out = linear(layer, Projection::kO, kept.attention);
  kept.hidden_mid =
      add_activation("hidden_mid" + suffix, DType::kF32, {tokens(), model_.hidden_size});
  add(node::Residual{kept.hidden_in, out, kept.hidden_mid}, Pass::kForward, layer);
}

ValueId StepBuilder::forward_mlp(std::int64_t layer, LayerActivations& kept) {
  const auto l = static_cast<std::size_t>(layer);
  const std::string suffix = "." + std::to_string(layer);
  kept.inv_rms2 = add_activation("inv_rms2" + suffix, DType::kF32, {tokens()});
  kept.norm2 = norm(layer, kept.hidden_mid, values_.layers[l].post_attention_norm, kept.inv_rms2,
                    Pass::kForward);
  kept.gate = linear(layer, Projection::kGate, kept.norm2);
  kept.up = linear(layer, Projection::kUp, kept.norm2);
  kept.product = swiglu(layer, kept, Pass::kForward);
  const ValueId down = linear(layer, Projection::kDown, kept.product);
  const ValueId out = add_activation("hidden." + std::to_string(layer + 1), DType::kF32,
                                     {tokens(), model_.hidden_size});
  add(node::Residual{kept.hidden_mid, down, out}, Pass::kForward, layer);
  return out;
}

ValueId StepBuilder::norm(std::int64_t layer, ValueId x, ValueId weight, ValueId inv_rms,
                          Pass pass) {
  const ValueId y = add_activation("norm(" + graph_.value(x).name + ")", activation(),
                                   {tokens(), model_.hidden_size});
  add(node::RmsNormForward{x, weight, y, inv_rms, static_cast<float>(model_.rms_norm_eps)}, pass,
      layer);
  return y;
}

ValueId StepBuilder::linear(std::int64_t layer, Projection projection, ValueId x) {
  const auto l = static_cast<std::size_t>(layer);
  const auto p = static_cast<std::size_t>(projection);
  const std::string name = "layers." + std::to_string(layer) + "." + name_of(projection);
  const StepValues::Layer& weights = values_.layers[l];
  node::LinearNf4Forward op{
      .compute = options_.compute,
      .x = x,
      .weight = weights.weight[p],
      .cached_weight = weights.cached_weight[p],
      .bias = weights.bias[p],
      .u = {},
      .y = add_activation(name + ".y", activation(), {tokens(), model_.out_features(projection)}),
      .lora = lora_term(layer, projection)};
  if (op.lora.a.present()) {
    op.u = add_activation(name + ".u", DType::kF32, {tokens(), options_.lora.rank});
    lora_u_[l][p] = op.u;
  }
  dump("x.", layer, projection, op.x);
  dump("y.", layer, projection, op.y);
  add(op, Pass::kForward, layer, projection);
  return op.y;
}

ValueId StepBuilder::rope(std::int64_t layer, Projection projection, ValueId x,
                          RopeDirection direction) {
  const Value& value = graph_.value(x);
  // In place, except where a dump wants the value on both sides of the rotation.
  const ValueId y =
      is_dump() ? add_activation("rope(" + value.name + ")", value.dtype, value.dims) : x;
  const bool forward = direction == RopeDirection::kForward;
  const std::int64_t heads =
      projection == Projection::kQ ? model_.num_attention_heads : model_.num_key_value_heads;
  add(node::Rope{x, values_.rope_table, y, heads, direction},
      forward ? Pass::kForward : Pass::kBackward, layer, projection);
  return y;
}

ValueId StepBuilder::swiglu(std::int64_t layer, const LayerActivations& kept, Pass pass) {
  const ValueId y = add_activation("swiglu." + std::to_string(layer), activation(),
                                   {tokens(), model_.intermediate_size});
  add(node::SwigluForward{kept.gate, kept.up, y}, pass, layer);
  return y;
}

}  // namespace reprise
