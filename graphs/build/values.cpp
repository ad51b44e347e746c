// The values of a step graph that live outside the arena.
#include "graphs/build/builder.h"
#include "reprise/kernels/step_params.h"

namespace reprise {

StepBuilder::StepBuilder(const ModelConfig& model, const LoraLayout& layout,
                         const StepOptions& options)
    : model_(model), layout_(layout), options_(options) {
  require(options.shape.batch > 0 && options.shape.seq > 0 && options.shape.accumulate > 0,
          "batch, seq and accumulate must be at least 1");
  require(options.kind != StepKind::kTrain || options.shape.accumulate == 1,
          "a step in one graph has one micro-batch; build a micro-step and an update instead");
}

bool StepBuilder::has_backward() const {
  return options_.kind == StepKind::kTrain || options_.kind == StepKind::kMicroStep || is_dump();
}

void StepBuilder::add_inputs() {
  values_.step_params = graph_.add_value({.name = "step_params",
                                          .dtype = DType::kU8,
                                          .dims = {sizeof(StepParams)},
                                          .kind = ValueKind::kInput,
                                          .parent = {}});
  if (options_.kind == StepKind::kUpdate) return;
  values_.input_ids = graph_.add_value({.name = "input_ids",
                                        .dtype = DType::kI32,
                                        .dims = {tokens()},
                                        .kind = ValueKind::kInput,
                                        .parent = {}});
  if (options_.kind == StepKind::kHidden) return;
  values_.labels = graph_.add_value({.name = "labels",
                                     .dtype = DType::kI32,
                                     .dims = {tokens()},
                                     .kind = ValueKind::kInput,
                                     .parent = {}});
}

void StepBuilder::add_frozen() {
  const auto frozen = [&](std::string name, DType dtype, Dims dims) {
    return graph_.add_value({.name = std::move(name),
                             .dtype = dtype,
                             .dims = dims,
                             .kind = ValueKind::kFrozen,
                             .parent = {}});
  };
  const std::int64_t hidden = model_.hidden_size;
  values_.embedding = frozen("embedding", options_.embedding_dtype, {model_.vocab_size, hidden});
  if (options_.kind != StepKind::kHidden) {
    values_.lm_head = model_.tie_word_embeddings
                          ? values_.embedding
                          : frozen("lm_head", options_.head_dtype, {model_.vocab_size, hidden});
  }
  values_.final_norm = frozen("final_norm", DType::kF32, {hidden});
  values_.rope_table =
      frozen("rope_table", DType::kF32, {options_.shape.seq, model_.head_dim / 2, 2});
  for (std::int64_t l = 0; l < model_.num_hidden_layers; ++l) {
    StepValues::Layer layer;
    const std::string prefix = "layers." + std::to_string(l) + ".";
    layer.input_norm = frozen(prefix + "input_norm", DType::kF32, {hidden});
    layer.post_attention_norm = frozen(prefix + "post_attention_norm", DType::kF32, {hidden});
    for (const Projection p : kAllProjections) {
      const auto i = static_cast<std::size_t>(p);
      const Dims dims = {model_.out_features(p), model_.in_features(p)};
      const std::string name = prefix + name_of(p);
      layer.weight[i] = graph_.add_value({.name = name,
                                          .dtype = DType::kU8,
                                          .dims = dims,
                                          .kind = ValueKind::kFrozenNf4,
                                          .parent = {}});
      if (options_.cached) layer.cached_weight[i] = frozen(name + ".cached", activation(), dims);
      if (model_.has_bias(p)) layer.bias[i] = frozen(name + ".bias", DType::kF32, {dims[0]});
    }
    values_.layers.push_back(layer);
  }
}

void StepBuilder::add_trained() {
  if (layout_.count == 0) return;
  const auto trained = [&](const char* name) {
    return graph_.add_value({.name = name,
                             .dtype = DType::kF32,
                             .dims = {layout_.count},
                             .kind = ValueKind::kTrained,
                             .parent = {}});
  };
  values_.lora_params = trained("lora_params");
  const bool grads = has_backward() || options_.kind == StepKind::kUpdate;
  if (grads) values_.lora_grads = trained("lora_grads");
  if (options_.kind == StepKind::kTrain || options_.kind == StepKind::kUpdate) {
    values_.exp_avg = trained("exp_avg");
    values_.exp_avg_sq = trained("exp_avg_sq");
  }
  if (options_.kind == StepKind::kUpdate) return;
  const std::int64_t element = size_of(DType::kF32);
  for (const LoraSlot& slot : layout_.slots) {
    const std::string name =
        "layers." + std::to_string(slot.layer) + "." + name_of(slot.projection);
    const Dims a = {slot.rank, slot.in_features}, b = {slot.out_features, slot.rank};
    lora_a_.push_back(
        graph_.add_part(values_.lora_params, name + ".lora_a", a, slot.a_offset * element));
    lora_b_.push_back(
        graph_.add_part(values_.lora_params, name + ".lora_b", b, slot.b_offset * element));
    if (!grads) continue;
    grad_a_.push_back(graph_.add_part(values_.lora_grads, "grad." + name + ".lora_a", a,
                                      slot.a_offset * element));
    grad_b_.push_back(graph_.add_part(values_.lora_grads, "grad." + name + ".lora_b", b,
                                      slot.b_offset * element));
  }
}

void StepBuilder::add_results() {
  const auto result = [&](const char* name, Dims dims) {
    return graph_.add_value({.name = name,
                             .dtype = DType::kF32,
                             .dims = dims,
                             .kind = ValueKind::kResult,
                             .parent = {}});
  };
  const StepKind kind = options_.kind;
  if (kind == StepKind::kHidden) return;
  values_.loss = result("loss", {options_.shape.accumulate});
  // The update graph reads the losses that the micro-steps have left.
  if (kind == StepKind::kUpdate) {
    graph_.values[static_cast<std::size_t>(values_.loss.index)].kind = ValueKind::kInput;
  }
  if (kind == StepKind::kEvaluate) values_.nll = result("nll", {tokens()});
  if (kind == StepKind::kDump) values_.logits = result("logits", {tokens(), model_.vocab_size});
  if (kind == StepKind::kTrain || kind == StepKind::kUpdate) {
    values_.grad_norm = result("grad_norm", {1});
    values_.decision = result("decision", {2});
  }
}

ValueId StepBuilder::add_activation(std::string name, DType dtype, Dims dims) {
  return graph_.add_value({.name = std::move(name),
                           .dtype = dtype,
                           .dims = dims,
                           .kind = ValueKind::kActivation,
                           .parent = {}});
}

void StepBuilder::add(Op op, Pass pass, std::int64_t layer, Projection projection) {
  graph_.add_node({std::move(op), pass, layer, projection});
}

node::LoraTerm StepBuilder::lora_term(std::int64_t layer, Projection projection) const {
  const LoraSlot* slot = layout_.find(layer, projection);
  if (slot == nullptr) return {};
  const auto index = static_cast<std::size_t>(slot - layout_.slots.data());
  // Only training draws masks: an evaluation sees the whole adapter.
  const bool drops = has_backward() && options_.lora.dropout > 0;
  return {.a = lora_a_[index],
          .b = lora_b_[index],
          .scale = options_.lora.scale(),
          .dropout = drops ? static_cast<float>(options_.lora.dropout) : 0.0f,
          .site = static_cast<std::uint32_t>(layer * kProjections) +
                  static_cast<std::uint32_t>(projection),
          .params = drops ? values_.step_params : ValueId{}};
}

void StepBuilder::dump(const std::string& prefix, std::int64_t layer, Projection projection,
                       ValueId value) {
  if (is_dump()) values_.dump.emplace_back(prefix + module_name(layer, projection), value);
}

StepGraph StepBuilder::build() && {
  constexpr const char* kNames[] = {"step", "micro-step", "update", "evaluation", "hidden", "dump"};
  graph_.name = std::string(kNames[static_cast<std::size_t>(options_.kind)]) + " " +
                std::to_string(options_.shape.batch) + "x" + std::to_string(options_.shape.seq);
  add_inputs();
  if (options_.kind != StepKind::kUpdate) add_frozen();
  add_trained();
  add_results();
  if (options_.kind != StepKind::kUpdate) forward();
  if (options_.kind != StepKind::kUpdate && options_.kind != StepKind::kHidden) loss();
  if (has_backward()) backward();
  if (options_.kind == StepKind::kTrain || options_.kind == StepKind::kUpdate) update();
  return {std::move(graph_), std::move(values_), options_};
}

StepGraph build_step(const ModelConfig& model, const LoraLayout& layout,
                     const StepOptions& options) {
  return StepBuilder(model, layout, options).build();
}

}  // namespace reprise
