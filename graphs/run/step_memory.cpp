#include "graphs/run/step_memory.h"

#include <algorithm>
#include <cstring>

#include "reprise/kernels/float16.h"

namespace reprise {
namespace {

constexpr std::int64_t kAlignment = 64;

// Lays values of one kind out one after another in a fresh buffer and binds them.
Buffer bind_values(const Graph& graph, ValueKind kind, Backend& backend, Bindings& bindings) {
  std::vector<std::pair<ValueId, std::int64_t>> offsets;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.kind != kind || value.parent.present() || bindings.memory[i] != nullptr) continue;
    offsets.emplace_back(ValueId{static_cast<std::int32_t>(i)}, bytes);
    bytes += (value.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  Buffer buffer = backend.allocate(bytes, "inputs and results of " + graph.name);
  for (const auto& [id, offset] : offsets) bindings.bind(id, buffer.data() + offset);
  return buffer;
}

void bind_model(const StepValues& values, const RunMemory& run, Bindings& bindings) {
  const auto bind = [&](ValueId id, void* data) {
    if (id.present()) bindings.bind(id, data);
  };
  const Model& model = *run.model;
  bind(values.embedding, model.embedding.buffer.data());
  // The head of a tied model is the embedding, under one id.
  if (model.lm_head.present()) bind(values.lm_head, model.lm_head.buffer.data());
  bind(values.final_norm, model.final_norm.buffer.data());
  bind(values.rope_table, run.rope_table.data());
  for (std::size_t l = 0; l < values.layers.size(); ++l) {
    const StepValues::Layer& ids = values.layers[l];
    const LayerWeights& weights = model.layers[l];
    bind(ids.input_norm, weights.input_norm.buffer.data());
    bind(ids.post_attention_norm, weights.post_attention_norm.buffer.data());
    for (std::size_t p = 0; p < kProjections; ++p) {
      bindings.bind(ids.weight[p], weights.projections[p].view());
      bind(ids.bias[p], weights.biases[p].buffer.data());
      if (ids.cached_weight[p].present()) bind(ids.cached_weight[p], run.cached[l][p].data());
    }
  }
  bind(values.lora_params, run.lora_params());
  bind(values.lora_grads, run.lora_grads());
  bind(values.exp_avg, run.exp_avg());
  bind(values.exp_avg_sq, run.exp_avg_sq());
}

void require_token(std::int64_t id, std::int64_t vocab_size, std::size_t index, const char* what) {
  if (id < 0 || id >= vocab_size) {
    throw InputError(std::string(what) + " " + std::to_string(id) + " at position " +
                     std::to_string(index) + " is outside the vocabulary of " +
                     std::to_string(vocab_size));
  }
}

}  // namespace

StepMemory::StepMemory(StepGraph step, GraphPlan plan, const RunMemory& run, std::byte* arena,
                       Backend& backend, StepMemory* inputs_of)
    : step_(std::make_unique<StepGraph>(std::move(step))) {
  const StepValues& values = step_->values;
  Bindings bindings(step_->graph);
  bind_model(values, run, bindings);
  if (inputs_of != nullptr) {
    const StepValues& theirs = inputs_of->step().values;
    bindings.bind(values.step_params, inputs_of->view(theirs.step_params).data);
    bindings.bind(values.loss, inputs_of->view(theirs.loss).data);
  }
  inputs_ = bind_values(step_->graph, ValueKind::kInput, backend, bindings);
  results_ = bind_values(step_->graph, ValueKind::kResult, backend, bindings);
  bound_ = std::make_unique<BoundGraph>(step_->graph, std::move(plan), std::move(bindings), arena,
                                        backend);
}

void StepMemory::set_batch(const TokenBatch& batch, std::int64_t vocab_size) {
  const StepShape& shape = step_->options.shape;
  if (batch.batch != shape.batch || batch.seq != shape.seq) {
    throw Error("the graph is built for " + std::to_string(shape.batch) + "x" +
                std::to_string(shape.seq) + " tokens, the batch has " +
                std::to_string(batch.batch) + "x" + std::to_string(batch.seq));
  }
  const auto tokens = static_cast<std::size_t>(shape.tokens());
  require(batch.input_ids.size() == tokens, "input_ids does not have batch * seq elements");
  for (std::size_t i = 0; i < tokens; ++i) {
    require_token(batch.input_ids[i], vocab_size, i, "token id");
  }
  std::copy(batch.input_ids.begin(), batch.input_ids.end(),
            view(step_->values.input_ids).as<std::int32_t>());
  if (!step_->values.labels.present()) return;
  require(batch.labels.size() == tokens, "labels does not have batch * seq elements");
  auto* shifted = view(step_->values.labels).as<std::int32_t>();
  const auto seq = static_cast<std::size_t>(shape.seq);
  for (std::size_t i = 0; i < tokens; ++i) {
    const bool last = (i + 1) % seq == 0;  // has no next token within its sequence
    shifted[i] = last ? kIgnoredLabel : batch.labels[i + 1];
    if (shifted[i] != kIgnoredLabel) require_token(shifted[i], vocab_size, i + 1, "label");
  }
}

void StepMemory::run(GraphMode mode) {
  if (mode == GraphMode::kOff) {
    bound_->run_eager();
    return;
  }
  if (captured_ == nullptr) captured_ = std::make_unique<CapturedGraph>(*bound_);
  captured_->replay(*bound_);
}

Tensor fp32_copy(const View& view, const std::string& name) {
  Tensor tensor = make_tensor(DType::kF32, view.dims, name);
  auto* out = tensor.view().as<float>();
  if (view.dtype == DType::kF32) {
    std::memcpy(out, view.data, static_cast<std::size_t>(view.bytes()));
  } else {
    const auto* in = view.as<BFloat16>();
    for (std::int64_t i = 0; i < view.count(); ++i) out[i] = to_float(in[i]);
  }
  return tensor;
}

}  // namespace reprise
