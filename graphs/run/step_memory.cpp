#include "graphs/run/step_memory.h"

#include <algorithm>
#include <cstring>

namespace reprise {
namespace {

constexpr std::int64_t kAlignment = 64;

// Lays values of one kind out one after another in a fresh buffer and binds them.
SharedBlock bind_values(const Graph& graph, ValueKind kind, Backend& backend, Bindings& bindings) {
  std::vector<std::pair<ValueId, std::int64_t>> offsets;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.kind != kind || value.parent.present() || bindings.memory[i] != nullptr) continue;
    offsets.emplace_back(ValueId{static_cast<std::int32_t>(i)}, bytes);
    bytes += (value.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  SharedBlock block(bytes, "inputs and results of " + graph.name, backend);
  for (const auto& [id, offset] : offsets) bindings.bind(id, block.data() + offset);
  return block;
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

bool starts_sequence(std::size_t token, const StepShape& shape) {
  return token % static_cast<std::size_t>(shape.seq) == 0;
}

}  // namespace

SharedBlock::SharedBlock(std::int64_t bytes, const std::string& what, Backend& backend)
    : device_(backend.allocate(bytes, what)) {
  if (!backend.host_memory()) host_ = Buffer(bytes, what);
}

void* SharedBlock::host(const void* address) const {
  const std::int64_t offset = static_cast<const std::byte*>(address) - device_.data();
  return (host_.data() != nullptr ? host_.data() : device_.data()) + offset;
}

void SharedBlock::upload(Backend& backend) const {
  if (host_.bytes() > 0) backend.upload(device_.data(), host_.data(), host_.bytes());
}

void SharedBlock::download(Backend& backend) const {
  if (host_.bytes() > 0) backend.download(host_.data(), device_.data(), host_.bytes());
}

StepMemory::StepMemory(StepGraph step, GraphPlan plan, const RunMemory& run, std::byte* arena,
                       Backend& backend, StepMemory* inputs_of)
    : step_(std::make_unique<StepGraph>(std::move(step))), run_(run) {
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

StepParams& StepMemory::params() {
  return *static_cast<StepParams*>(inputs_.host(view(step_->values.step_params).data));
}

View StepMemory::result(ValueId id) const {
  View seen = view(id);
  seen.data = results_.host(seen.data);
  return seen;
}

void StepMemory::require_batch(const TokenBatch& batch, std::int64_t vocab_size) const {
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
  if (!step_->values.labels.present()) return;
  require(batch.labels.size() == tokens, "labels does not have batch * seq elements");
  for (std::size_t i = 0; i < tokens; ++i) {
    if (batch.labels[i] != kIgnoredLabel && !starts_sequence(i, shape)) {
      require_token(batch.labels[i], vocab_size, i, "label");
    }
  }
}

void StepMemory::set_batch(const TokenBatch& batch, std::int64_t vocab_size) {
  require_batch(batch, vocab_size);
  copy_batch(batch);
}

void StepMemory::copy_batch(const TokenBatch& batch) {
  std::copy(batch.input_ids.begin(), batch.input_ids.end(),
            static_cast<std::int32_t*>(inputs_.host(view(step_->values.input_ids).data)));
  if (!step_->values.labels.present()) return;
  auto* shifted = static_cast<std::int32_t*>(inputs_.host(view(step_->values.labels).data));
  const StepShape& shape = step_->options.shape;
  const auto tokens = static_cast<std::size_t>(shape.tokens());
  for (std::size_t i = 0; i < tokens; ++i) {
    // The last token of a sequence has no next one.
    const bool last = i + 1 == tokens || starts_sequence(i + 1, shape);
    shifted[i] = last ? kIgnoredLabel : batch.labels[i + 1];
  }
}

// Devices load a kernel when it first runs, which a capture does not allow. So everything runs once
// before, and what that trained is undone.
void StepMemory::capture() {
  Backend& backend = bound_->backend();
  if (!backend.host_memory()) {
    const std::int64_t bytes = run_.trained.bytes();
    std::vector<std::byte> before(static_cast<std::size_t>(bytes));
    backend.download(before.data(), run_.trained.data(), bytes);
    bound_->run_eager();
    backend.upload(run_.trained.data(), before.data(), bytes);
  }
  captured_ = std::make_unique<CapturedGraph>(*bound_);
}

void StepMemory::run(GraphMode mode) {
  inputs_.upload(bound_->backend());
  if (mode != GraphMode::kOff && captured_ == nullptr && eager_reason_.empty()) {
    try {
      capture();
    } catch (const Error& error) {
      if (mode == GraphMode::kRequired) throw;
      eager_reason_ = error.what();
    }
  }
  if (captured_ != nullptr && mode != GraphMode::kOff) {
    captured_->replay(*bound_);
  } else {
    bound_->run_eager();
  }
}

std::string StepMemory::first_not_finite_node() {
  inputs_.upload(bound_->backend());
  return reprise::first_not_finite_node(*bound_);
}

}  // namespace reprise
