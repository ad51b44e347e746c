// A QLoRA run: buffers, graphs, steps.
#include "reprise/graphs/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "graphs/run/step_memory.h"
#include "reprise/kernels/float16.h"

namespace reprise {

namespace {

StepOptions step_options(const TrainerOptions& options, StepKind kind, DType embedding_dtype,
                         DType head_dtype) {
  return {.kind = kind,
          .shape = options.shape,
          .compute = options.compute,
          .embedding_dtype = embedding_dtype,
          .head_dtype = head_dtype,
          .lora = options.lora,
          .adamw = options.adamw,
          .clip = options.clip,
          .prune = options.prune,
          .cached = options.linear == LinearMode::kCached};
}

StepKind main_kind(const TrainerOptions& options) {
  return options.shape.accumulate == 1 ? StepKind::kTrain : StepKind::kMicroStep;
}

std::int64_t cached_bytes(const ModelConfig& model, const TrainerOptions& options) {
  if (options.linear != LinearMode::kCached) return 0;
  return model.projection_weights() * size_of(activation_dtype(options.compute));
}

MemoryReport report_of(const GraphPlan& plan, std::int64_t weights, std::int64_t lora_count) {
  const std::int64_t flat = lora_count * size_of(DType::kF32);
  return {.weights = weights,
          .adapters = 2 * flat,
          .optimizer = 2 * flat,
          .activations = plan.activation_bytes,
          .scratch = plan.arena_bytes - std::min(plan.arena_bytes, plan.activation_bytes)};
}

}  // namespace

MemoryReport plan_memory(const ModelConfig& model, const TrainerOptions& options,
                         DType embedding_dtype, const Backend& backend) {
  const LoraLayout layout = make_lora_layout(model, options.lora);
  const StepGraph step = build_step(
      model, layout, step_options(options, main_kind(options), embedding_dtype, embedding_dtype));
  const GraphPlan plan = make_plan(step.graph, backend.ops(), backend.threads(), Reuse::kReuse);
  return report_of(plan, weight_bytes(model, embedding_dtype) + cached_bytes(model, options),
                   layout.count);
}

struct Trainer::State {
  const Model& model;
  TrainerOptions options;
  Backend& backend;
  LoraLayout layout;
  RunMemory run;
  Buffer arena;
  std::unique_ptr<StepMemory> main;    // the step, or the micro-step
  std::unique_ptr<StepMemory> update;  // only with accumulation
  // Graphs for evaluation and sampling, by batch and sequence length, each with its arena.
  struct Forward {
    Buffer arena;
    std::unique_ptr<StepMemory> memory;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, Forward> evaluations, hiddens;
  std::int64_t steps_done = 0;

  State(const Model& frozen, const TrainerOptions& wanted, Backend& place)
      : model(frozen), options(wanted), backend(place) {
    layout = make_lora_layout(model.config, options.lora);
    run.model = &model;
    run.trained_count = layout.count;
    run.trained = backend.allocate(4 * layout.count * size_of(DType::kF32),
                                   "adapters, gradients and optimiser state");
    make_rope_table();
    make_cached_weights();
    build_main();
  }

  StepGraph build(const TrainerOptions& with, StepKind kind) const {
    const DType head = model.lm_head.present() ? model.lm_head.dtype : model.embedding.dtype;
    StepGraph step =
        build_step(model.config, layout, step_options(with, kind, model.embedding.dtype, head));
    for (std::size_t l = 0; l < step.values.layers.size(); ++l) {
      for (std::size_t p = 0; p < kProjections; ++p) {
        const auto id = static_cast<std::size_t>(step.values.layers[l].weight[p].index);
        step.graph.values[id].nf4_block_size = model.layers[l].projections[p].block_size;
        step.graph.values[id].nf4_order = model.layers[l].projections[p].order;
      }
    }
    return step;
  }

  GraphPlan plan(const StepGraph& step, Reuse reuse = Reuse::kReuse) const {
    return make_plan(step.graph, backend.ops(), backend.threads(), reuse);
  }

  void make_rope_table() {
    run.rope_positions = options.shape.seq;
    const std::vector<float> table = rope_table(model.config, run.rope_positions);
    const auto bytes = static_cast<std::int64_t>(table.size() * sizeof(float));
    run.rope_table = backend.allocate(bytes, "rotary table");
    std::memcpy(run.rope_table.data(), table.data(), table.size() * sizeof(float));
  }

  void make_cached_weights() {
    if (options.linear != LinearMode::kCached) return;
    const DType dtype = activation_dtype(options.compute);
    for (const LayerWeights& layer : model.layers) {
      std::array<Buffer, kProjections>& buffers = run.cached.emplace_back();
      for (std::size_t p = 0; p < kProjections; ++p) {
        const Nf4View weight = layer.projections[p].view();
        Buffer values = backend.allocate(weight.count() * size_of(DType::kF32), "cached weight");
        auto* fp32 = reinterpret_cast<float*>(values.data());
        dequantize_nf4(weight, fp32);
        if (dtype == DType::kF32) {
          buffers[p] = std::move(values);
          continue;
        }
        buffers[p] = backend.allocate(weight.count() * size_of(dtype), "cached weight");
        auto* bf16 = reinterpret_cast<BFloat16*>(buffers[p].data());
        for (std::int64_t i = 0; i < weight.count(); ++i) bf16[i] = to_bfloat16(fp32[i]);
      }
    }
  }

  void build_main() {
    StepGraph step = build(options, main_kind(options));
    GraphPlan step_plan = plan(step);
    std::unique_ptr<StepGraph> update_step;
    std::int64_t arena_bytes = step_plan.arena_bytes;
    GraphPlan update_plan;
    if (options.shape.accumulate > 1) {
      update_step = std::make_unique<StepGraph>(build(options, StepKind::kUpdate));
      update_plan = plan(*update_step);
      arena_bytes = std::max(arena_bytes, update_plan.arena_bytes);
    }
    arena = backend.allocate(arena_bytes, "activations");
    main = std::make_unique<StepMemory>(std::move(step), std::move(step_plan), run, arena.data(),
                                        backend);
    if (update_step) {
      update = std::make_unique<StepMemory>(std::move(*update_step), std::move(update_plan), run,
                                            arena.data(), backend, main.get());
    }
  }

  // The graph for a forward pass over batch x seq tokens. It shares the training arena where it
  // fits: between two steps nothing in there is needed.
  StepMemory& forward_graph(StepKind kind, std::int64_t batch, std::int64_t seq) {
    auto& graphs = kind == StepKind::kEvaluate ? evaluations : hiddens;
    Forward& entry = graphs[{batch, seq}];
    if (entry.memory != nullptr) return *entry.memory;
    if (seq > run.rope_positions) {
      throw UsageError("a sequence of " + std::to_string(seq) + " tokens is longer than --seq " +
                       std::to_string(run.rope_positions));
    }
    TrainerOptions with = options;
    with.shape = {.batch = batch, .seq = seq, .accumulate = 1};
    StepGraph step = build(with, kind);
    GraphPlan step_plan = plan(step);
    std::byte* memory = arena.data();
    if (step_plan.arena_bytes > arena.bytes()) {
      entry.arena = backend.allocate(step_plan.arena_bytes, "activations of a forward pass");
      memory = entry.arena.data();
    }
    entry.memory =
        std::make_unique<StepMemory>(std::move(step), std::move(step_plan), run, memory, backend);
    return *entry.memory;
  }

  std::string name_bad_node(std::span<const TokenBatch> micro_batches) {
    // Nothing was updated, so running the graph again meets the same values.
    for (std::size_t i = 0; i < micro_batches.size(); ++i) {
      std::fill_n(run.lora_grads(), layout.count, 0.0f);
      main->set_batch(micro_batches[i], model.config.vocab_size);
      main->params().micro_step = static_cast<std::int32_t>(i);
      std::string found = first_not_finite_node(main->bound());
      if (!found.empty()) return found;
    }
    return "the sum of the gradients";
  }
};

Trainer::Trainer(const Model& model, const TrainerOptions& options, Backend& backend)
    : state_(std::make_unique<State>(model, options, backend)) {}
Trainer::~Trainer() = default;

void Trainer::initialise(std::uint64_t seed) {
  State& s = *state_;
  std::memset(s.run.trained.data(), 0, static_cast<std::size_t>(s.run.trained.bytes()));
  initialise_lora(s.layout, seed, s.run.lora_params());
  s.steps_done = 0;
}

StepResult Trainer::step(std::span<const TokenBatch> micro_batches, double learning_rate) {
  State& s = *state_;
  const std::int64_t accumulate = s.options.shape.accumulate;
  require(static_cast<std::int64_t>(micro_batches.size()) == accumulate,
          "step() takes as many micro-batches as --accumulate says");
  StepResult result;
  for (const TokenBatch& batch : micro_batches) result.target_tokens += batch.target_tokens();
  const double scale =
      result.target_tokens > 0 ? 1.0 / static_cast<double>(result.target_tokens) : 0.0;
  s.main->params() = {.step = s.steps_done + 1,
                      .seed = s.options.seed,
                      .learning_rate = static_cast<float>(learning_rate),
                      .loss_scale = static_cast<float>(scale)};
  for (std::int64_t i = 0; i < accumulate; ++i) {
    s.main->params().micro_step = static_cast<std::int32_t>(i);
    s.main->set_batch(micro_batches[static_cast<std::size_t>(i)], s.model.config.vocab_size);
    s.main->run(s.options.graph);
  }
  StepMemory& last = s.update ? *s.update : *s.main;
  if (s.update) s.update->run(s.options.graph);

  const auto* losses = s.main->view(s.main->step().values.loss).as<float>();
  for (std::int64_t i = 0; i < accumulate; ++i) result.loss += static_cast<double>(losses[i]);
  const StepValues& values = last.step().values;
  result.grad_norm = static_cast<double>(*last.view(values.grad_norm).as<float>());
  result.finite = last.view(values.decision).as<float>()[1] != 0;
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
  const View nll = memory.view(memory.step().values.nll);
  EvaluationResult result{.target_tokens = batch.target_tokens()};
  for (std::int64_t i = 0; i < nll.count(); ++i) {
    result.nll_sum += static_cast<double>(nll.as<float>()[i]);
  }
  return result;
}

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
  std::vector<float> logits(static_cast<std::size_t>(s.model.config.vocab_size));
  LmHeadArgs args{
      .compute = s.options.compute,
      .x = ConstView(static_cast<const std::byte*>(hidden.data) + (count - 1) * row_bytes,
                     hidden.dtype, {1, hidden.dims.last()}),
      .weight = s.model.head(),
      .logits = {logits.data(), DType::kF32, {1, s.model.config.vocab_size}},
      .scratch = {}};
  const auto& lm_head = select(s.backend.ops().lm_head, args, "lm_head");
  Buffer scratch;
  if (lm_head.scratch_bytes != nullptr) {
    scratch = s.backend.allocate(lm_head.scratch_bytes(args, s.backend.threads()), "head scratch");
    args.scratch = {scratch.data(), scratch.bytes()};
  }
  lm_head.run(args, s.backend.execution());
  return logits;
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
    tensors.emplace_back(name, fp32_copy(view, name));
  }
  // The gradients of the dump are no part of the run.
  std::fill_n(s.run.lora_grads(), s.layout.count, 0.0f);
  return tensors;
}

std::span<std::byte> Trainer::arena() {
  return {state_->arena.data(), static_cast<std::size_t>(state_->arena.bytes())};
}
const LoraLayout& Trainer::layout() const { return state_->layout; }
std::span<float> Trainer::lora_params() {
  return {state_->run.lora_params(), static_cast<std::size_t>(state_->layout.count)};
}
std::span<const float> Trainer::lora_grads() const {
  return {state_->run.lora_grads(), static_cast<std::size_t>(state_->layout.count)};
}
std::int64_t Trainer::steps_done() const { return state_->steps_done; }
const StepGraph& Trainer::step_graph() const { return state_->main->step(); }
const GraphPlan& Trainer::step_plan() const { return state_->main->bound().plan(); }

MemoryReport Trainer::memory() const {
  const State& s = *state_;
  std::int64_t weights = s.model.embedding.buffer.bytes() + s.model.lm_head.buffer.bytes() +
                         s.model.final_norm.buffer.bytes();
  for (const LayerWeights& layer : s.model.layers) {
    weights += layer.input_norm.buffer.bytes() + layer.post_attention_norm.buffer.bytes();
    for (const Nf4Weight& weight : layer.projections) weights += weight.bytes();
    for (const Tensor& bias : layer.biases) weights += bias.buffer.bytes();
  }
  return report_of(s.main->bound().plan(), weights + cached_bytes(s.model.config, s.options),
                   s.layout.count);
}

}  // namespace reprise
