// Loss, and the backward pass from the head to the embedding. The frozen weights get no gradients;
// norm and SwiGLU outputs are made again instead of being kept.
#include "graphs/build/builder.h"

namespace reprise {

void StepBuilder::loss() {
  ValueId grad;
  if (has_backward()) {
    grad = grad_final_norm_y_ =
        add_activation("grad.final_norm", DType::kF32, {tokens(), model_.hidden_size});
  }
  add(node::CrossEntropy{.compute = options_.compute,
                         .x = final_norm_y_,
                         .weight = values_.lm_head,
                         .labels = values_.labels,
                         .params = values_.step_params,
                         .loss = values_.loss,
                         .nll = values_.nll,
                         .grad_x = grad},
      Pass::kLoss);
  if (!is_dump()) return;
  add(node::LmHead{options_.compute, final_norm_y_, values_.lm_head, values_.logits}, Pass::kLoss);
  values_.dump.emplace_back("loss", values_.loss);
  values_.dump.emplace_back("logits", values_.logits);
}

void StepBuilder::backward() {
  grad_hidden_ = add_activation("grad.hidden", DType::kF32, {tokens(), model_.hidden_size});
  add(node::RmsNormBackward{.grad_y = grad_final_norm_y_,
                            .x = last_hidden_,
                            .weight = values_.final_norm,
                            .inv_rms = final_inv_rms_,
                            .grad_x = grad_hidden_,
                            .mode = OutputMode::kOverwrite},
      Pass::kBackward);
  for (std::int64_t l = model_.num_hidden_layers - 1; l >= 0; --l) {
    backward_mlp(l);
    backward_attention(l);
  }
  if (!is_dump()) return;
  values_.dump.emplace_back("dx.embed", grad_hidden_);
  for (std::size_t i = 0; i < layout_.slots.size(); ++i) {
    const LoraSlot& slot = layout_.slots[i];
    const std::string name = "grad." + module_name(slot.layer, slot.projection);
    values_.dump.emplace_back(name + ".lora_A.weight", grad_a_[i]);
    values_.dump.emplace_back(name + ".lora_B.weight", grad_b_[i]);
  }
}

void StepBuilder::backward_mlp(std::int64_t layer) {
  const auto l = static_cast<std::size_t>(layer);
  const LayerActivations& kept = kept_[l];
  const std::string suffix = "." + std::to_string(layer);
  const Dims wide = {tokens(), model_.intermediate_size};

  const ValueId product = is_dump() ? kept.product : swiglu(layer, kept, Pass::kBackward);
  ValueId grad_product;
  backward_linear(layer, Projection::kDown, grad_hidden_, product, grad_product, activation());
  const ValueId grad_gate = add_activation("grad.gate" + suffix, activation(), wide);
  const ValueId grad_up = add_activation("grad.up" + suffix, activation(), wide);
  add(node::SwigluBackward{grad_product, kept.gate, kept.up, grad_gate, grad_up}, Pass::kBackward,
      layer);

  const ValueId weight = values_.layers[l].post_attention_norm;
  const ValueId norm2 =
      is_dump() ? kept.norm2 : norm(layer, kept.hidden_mid, weight, kept.inv_rms2, Pass::kBackward);
  ValueId grad_norm2;
  backward_linear(layer, Projection::kGate, grad_gate, norm2, grad_norm2, DType::kF32);
  backward_linear(layer, Projection::kUp, grad_up, norm2, grad_norm2, DType::kF32);
  backward_norm(layer, grad_norm2, kept.hidden_mid, weight, kept.inv_rms2);
}

void StepBuilder::backward_attention(std::int64_t layer) {
  const auto l = static_cast<std::size_t>(layer);
  const LayerActivations& kept = kept_[l];
  const std::string suffix = "." + std::to_string(layer);
  ValueId grad_attention;
  backward_linear(layer, Projection::kO, grad_hidden_, kept.attention, grad_attention,
                  activation());
  const auto grad_of = [&](const char* name, ValueId of) {
    return add_activation(name + suffix, activation(), graph_.value(of).dims);
  };
  ValueId grad_q = grad_of("grad.q", kept.q);
  ValueId grad_k = grad_of("grad.k", kept.k);
  const ValueId grad_v = grad_of("grad.v", kept.v);
  add(node::AttentionBackward{options_.compute, attention_shape(), grad_attention, kept.q, kept.k,
                              kept.v, kept.attention, kept.lse, grad_q, grad_k, grad_v},
      Pass::kBackward, layer);
  grad_q = rope(layer, Projection::kQ, grad_q, RopeDirection::kInverse);
  grad_k = rope(layer, Projection::kK, grad_k, RopeDirection::kInverse);

  const ValueId weight = values_.layers[l].input_norm;
  const ValueId norm1 =
      is_dump() ? kept.norm1 : norm(layer, kept.hidden_in, weight, kept.inv_rms1, Pass::kBackward);
  ValueId grad_norm1;
  backward_linear(layer, Projection::kQ, grad_q, norm1, grad_norm1, DType::kF32);
  backward_linear(layer, Projection::kK, grad_k, norm1, grad_norm1, DType::kF32);
  backward_linear(layer, Projection::kV, grad_v, norm1, grad_norm1, DType::kF32);
  if (grad_norm1.present()) {
    backward_norm(layer, grad_norm1, kept.hidden_in, weight, kept.inv_rms1);
  }
}

void StepBuilder::backward_linear(std::int64_t layer, Projection projection, ValueId grad_y,
                                  ValueId x, ValueId& grad_x, DType grad_x_dtype) {
  const auto l = static_cast<std::size_t>(layer);
  const auto p = static_cast<std::size_t>(projection);
  const std::string name = "layers." + std::to_string(layer) + "." + name_of(projection);
  const node::LoraTerm lora = lora_term(layer, projection);
  ValueId grad_u;
  if (lora.a.present()) {
    const auto slot =
        static_cast<std::size_t>(layout_.find(layer, projection) - layout_.slots.data());
    grad_u = add_activation("grad." + name + ".u", DType::kF32, {tokens(), options_.lora.rank});
    add(node::LoraBackward{.compute = options_.compute,
                           .grad_y = grad_y,
                           .x = x,
                           .u = lora_u_[l][p],
                           .grad_u = grad_u,
                           .grad_a = grad_a_[slot],
                           .grad_b = grad_b_[slot],
                           .lora = lora,
                           .mode = options_.kind == StepKind::kMicroStep ? OutputMode::kAccumulate
                                                                         : OutputMode::kOverwrite},
        Pass::kBackward, layer, projection);
  }
  dump("dy.", layer, projection, grad_y);
  const bool unread = layer == 0 && (projection == Projection::kQ || projection == Projection::kK ||
                                     projection == Projection::kV);
  if (options_.prune && unread && !is_dump()) return;
  // A dump keeps each projection's share apart and adds them up afterwards.
  const ValueId sum = grad_x;
  const bool accumulates = sum.present() && !is_dump();
  const ValueId share = accumulates ? sum
                                    : add_activation("grad." + name + ".x", grad_x_dtype,
                                                     {tokens(), model_.in_features(projection)});
  add(node::LinearNf4Backward{.compute = options_.compute,
                              .grad_y = grad_y,
                              .weight = values_.layers[l].weight[p],
                              .cached_weight = values_.layers[l].cached_weight[p],
                              .grad_u = grad_u,
                              .grad_x = share,
                              .lora = lora,
                              .mode =
                                  accumulates ? OutputMode::kAccumulate : OutputMode::kOverwrite},
      Pass::kBackward, layer, projection);
  dump("dx.", layer, projection, share);
  grad_x = share;
  if (is_dump() && sum.present()) {
    grad_x = add_activation("grad." + name + ".sum", grad_x_dtype, graph_.value(share).dims);
    add(node::Residual{sum, share, grad_x}, Pass::kBackward, layer);
  }
}

void StepBuilder::backward_norm(std::int64_t layer, ValueId grad_y, ValueId x, ValueId weight,
                                ValueId inv_rms) {
  if (!is_dump()) {
    add(node::RmsNormBackward{grad_y, x, weight, inv_rms, grad_hidden_, OutputMode::kAccumulate},
        Pass::kBackward, layer);
    return;
  }
  // The gradient before this point is a projection's dy and stays as it is.
  const Dims dims = {tokens(), model_.hidden_size};
  const ValueId share =
      add_activation("grad.norm(" + graph_.value(x).name + ")", DType::kF32, dims);
  add(node::RmsNormBackward{grad_y, x, weight, inv_rms, share, OutputMode::kOverwrite},
      Pass::kBackward, layer);
  const ValueId sum = add_activation("grad." + graph_.value(x).name, DType::kF32, dims);
  add(node::Residual{grad_hidden_, share, sum}, Pass::kBackward, layer);
  grad_hidden_ = sum;
}

}  // namespace reprise
