// A QLoRA run: steps, evaluation, sampling, dumps.
#include "reprise/graphs/trainer.h"

#include <algorithm>
#include <cstring>

#include "graphs/run/trainer_state.h"

namespace reprise {

Trainer::Trainer(const Model& model, const TrainerOptions& options, Backend& backend)
    : state_(std::make_unique<State>(model, options, backend)) {}
Trainer::~Trainer() = default;

void Trainer::initialise(std::uint64_t seed) {
  State& s = *state_;
  s.backend.fill(s.run.trained.data(), 0, s.run.trained.bytes());
  std::vector<float> params(static_cast<std::size_t>(s.layout.count));
  initialise_lora(s.layout, seed, params.data());
  set_lora_params(params);
  s.steps_done = 0;
}

StepResult Trainer::step(std::span<const TokenBatch> micro_batches, double learning_rate) {
  State& s = *state_;
  const std::int64_t accumulate = s.options.shape.accumulate;
  require(static_cast<std::int64_t>(micro_batches.size()) == accumulate,
          "step() takes as many micro-batches as --accumulate says");
  StepResult result;
  for (const TokenBatch& batch : micro_batches) {
    // All of them before any runs: a step is done whole or not at all.
    s.main->require_batch(batch, s.model.config.vocab_size);
    result.target_tokens += batch.target_tokens();
  }
  const double scale =
      result.target_tokens > 0 ? 1.0 / static_cast<double>(result.target_tokens) : 0.0;
  s.main->params() = {.step = s.steps_done + 1,
                      .seed = s.options.seed,
                      .learning_rate = static_cast<float>(learning_rate),
                      .loss_scale = static_cast<float>(scale)};
  for (std::int64_t i = 0; i < accumulate; ++i) {
    s.main->params().micro_step = static_cast<std::int32_t>(i);
    s.main->copy_batch(micro_batches[static_cast<std::size_t>(i)]);
    s.main->run(s.options.graph);
  }
  StepMemory& last = s.update ? *s.update : *s.main;
  if (s.update) s.update->run(s.options.graph);

  s.main->fetch_results();
  if (s.update) s.update->fetch_results();
  const auto* losses = s.main->result(s.main->step().values.loss).as<float>();
  for (std::int64_t i = 0; i < accumulate; ++i) result.loss += static_cast<double>(losses[i]);
  const StepValues& values = last.step().values;
  result.grad_norm = static_cast<double>(*last.result(values.grad_norm).as<float>());
  result.finite = last.result(values.decision).as<float>()[1] != 0;
  if (result.finite) {
    ++s.steps_done;
  } else {
    result.bad_node = s.name_bad_node(micro_batches);
  }
  return result;
}

EvaluationResult Trainer::evaluate(const TokenBatch& batch) {
  State& s = *state_;
  StepMemory& memory = s.forward_graph(StepKind::kEvaluate, batch.batch, batch.seq);
  memory.set_batch(batch, s.model.config.vocab_size);
  memory.params() = {.seed = 0, .learning_rate = 0, .loss_scale = 1};
  memory.run(s.options.graph);
  memory.fetch_results();
  const View nll = memory.result(memory.step().values.nll);
  EvaluationResult result{.target_tokens = batch.target_tokens()};
  for (std::int64_t i = 0; i < nll.count(); ++i) {
    result.nll_sum += static_cast<double>(nll.as<float>()[i]);
  }
  return result;
}

std::int64_t Trainer::longest_sequence() const { return state_->run.rope_positions; }

std::vector<float> Trainer::next_logits(std::span<const std::int32_t> tokens) {
  State& s = *state_;
  require(!tokens.empty(), "next_logits needs at least one token");
  // Lengths are rounded up, so that a growing text needs few graphs; causal attention never looks
  // at what follows the last token.
  constexpr std::int64_t kBucket = 32;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t rounded = (count + kBucket - 1) / kBucket * kBucket;
  const std::int64_t seq = std::max(count, std::min(rounded, s.run.rope_positions));
  StepMemory& memory = s.forward_graph(StepKind::kHidden, 1, seq);
  TokenBatch batch{.batch = 1,
                   .seq = seq,
                   .input_ids = {tokens.begin(), tokens.end()},
                   .labels = {},
                   .real_tokens = count};
  batch.input_ids.resize(static_cast<std::size_t>(seq), 0);
  memory.set_batch(batch, s.model.config.vocab_size);
  memory.run(s.options.graph);

  const View hidden = memory.view(memory.step().values.hidden);
  const std::int64_t row_bytes = hidden.dims.last() * size_of(hidden.dtype);
  return s.head_logits(
      ConstView(static_cast<const std::byte*>(hidden.data) + (count - 1) * row_bytes, hidden.dtype,
                {1, hidden.dims.last()}));
}

std::vector<std::pair<std::string, Tensor>> Trainer::dump(const TokenBatch& batch) {
  State& s = *state_;
  TrainerOptions with = s.options;
  with.shape = {.batch = batch.batch, .seq = batch.seq, .accumulate = 1};
  StepGraph step = s.build(with, StepKind::kDump);
  GraphPlan step_plan = s.plan(step, Reuse::kRetain);
  const Buffer arena = s.backend.allocate(step_plan.arena_bytes, "activations of a dump");
  StepMemory memory(std::move(step), std::move(step_plan), s.run, arena.data(), s.backend);
  memory.set_batch(batch, s.model.config.vocab_size);
  const auto targets = static_cast<float>(batch.target_tokens());
  memory.params() = {.step = 1,
                     .seed = s.options.seed,
                     .learning_rate = 0,
                     .loss_scale = targets > 0 ? 1.0f / targets : 0.0f};
  memory.run(GraphMode::kOff);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, id] : memory.step().values.dump) {
    View view = memory.view(id);
    const bool per_token = view.dims.rank() == 2 && !name.starts_with("grad.");
    if (per_token) view.dims = {batch.batch, batch.seq, view.dims[1]};
    tensors.emplace_back(name, host_copy(s.backend, view, name));
  }
  // The gradients of the dump are no part of the run.
  s.zero_grads();
  return tensors;
}

void Trainer::poison_activations(std::uint8_t byte) {
  state_->backend.fill(state_->arena.data(), byte, state_->arena.bytes());
}

const LoraLayout& Trainer::layout() const { return state_->layout; }

std::vector<float> Trainer::lora_params() const {
  return state_->read_flat(state_->run.lora_params());
}

std::vector<float> Trainer::lora_grads() const {
  return state_->read_flat(state_->run.lora_grads());
}

void Trainer::set_lora_params(std::span<const float> params) {
  require(static_cast<std::int64_t>(params.size()) == state_->layout.count,
          "set_lora_params takes as many values as the layout has");
  state_->backend.upload(state_->run.lora_params(), params.data(),
                         state_->layout.count * size_of(DType::kF32));
}

std::int64_t Trainer::steps_done() const { return state_->steps_done; }
const StepGraph& Trainer::step_graph() const { return state_->main->step(); }
const GraphPlan& Trainer::step_plan() const { return state_->main->bound().plan(); }

std::string Trainer::eager_reason() const { return state_->main->eager_reason(); }

std::vector<CapturedNode> Trainer::device_nodes() const {
  const CapturedGraph* captured = state_->main->captured();
  return captured != nullptr ? captured->device_nodes() : std::vector<CapturedNode>{};
}

}  // namespace reprise
