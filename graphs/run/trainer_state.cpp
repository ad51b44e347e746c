// Buffers and graphs of a run: what is made once, and what is made when it is first asked for.
#include "graphs/run/trainer_state.h"

#include <algorithm>

#include "graphs/run/step_options.h"
#include "reprise/kernels/float16.h"

namespace reprise {

Trainer::State::State(const Model& frozen, const TrainerOptions& wanted, Backend& place)
    : model(frozen), options(wanted), backend(place) {
  require(model.place == (backend.host_memory() ? nullptr : &backend),
          "the model's weights are not where " + backend.name() + " can read them: place_model()");
  require(backend.host_memory() || options.linear == LinearMode::kFused,
          "devices compute NF4 products fused only");
  layout = make_lora_layout(model.config, options.lora);
  run.model = &model;
  run.trained_count = layout.count;
  run.trained = backend.allocate(4 * layout.count * size_of(DType::kF32),
                                 "adapters, gradients and optimiser state");
  make_rope_table();
  make_cached_weights();
  build_main();
}

StepGraph Trainer::State::build(const TrainerOptions& with, StepKind kind) const {
  const DType head_dtype = model.lm_head.present() ? model.lm_head.dtype : model.embedding.dtype;
  StepGraph step = build_step(model.config, layout,
                              step_options(with, kind, {model.embedding.dtype, head_dtype}));
  for (std::size_t l = 0; l < step.values.layers.size(); ++l) {
    for (std::size_t p = 0; p < kProjections; ++p) {
      const auto id = static_cast<std::size_t>(step.values.layers[l].weight[p].index);
      step.graph.values[id].nf4_block_size = model.layers[l].projections[p].block_size;
      step.graph.values[id].nf4_order = model.layers[l].projections[p].order;
    }
  }
  return step;
}

void Trainer::State::make_rope_table() {
  run.rope_positions = options.shape.seq;
  const std::vector<float> table = rope_table(model.config, run.rope_positions);
  const auto bytes = static_cast<std::int64_t>(table.size() * sizeof(float));
  run.rope_table = backend.allocate(bytes, "rotary table");
  backend.upload(run.rope_table.data(), table.data(), bytes);
}

void Trainer::State::make_cached_weights() {
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

void Trainer::State::build_main() {
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

StepMemory& Trainer::State::forward_graph(StepKind kind, std::int64_t batch, std::int64_t seq) {
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

void Trainer::State::make_head() {
  const ConstView weight = model.head();
  const std::int64_t vocab_size = weight.dims[0];
  const DType dtype = activation_dtype(options.compute);
  head.logits = backend.allocate(vocab_size * size_of(DType::kF32), "logits of a token");
  head.args = {.compute = options.compute,
               .x = ConstView(nullptr, dtype, {1, weight.dims[1]}),
               .weight = weight,
               .logits = {head.logits.data(), DType::kF32, {1, vocab_size}},
               .scratch = {}};
  const auto& lm_head = select(backend.ops().lm_head, head.args, "lm_head");
  head.run = lm_head.run;
  if (lm_head.scratch_bytes == nullptr) return;
  head.scratch = backend.allocate(lm_head.scratch_bytes(head.args, backend.threads()),
                                  "scratch of the vocabulary head");
  head.args.scratch = {head.scratch.data(), head.scratch.bytes()};
}

std::vector<float> Trainer::State::head_logits(const ConstView& row) {
  if (head.run == nullptr) make_head();
  head.args.x = row;
  head.run(head.args, backend.execution());
  std::vector<float> logits(static_cast<std::size_t>(head.args.logits.count()));
  backend.download(logits.data(), head.logits.data(), head.logits.bytes());
  return logits;
}

std::vector<float> Trainer::State::read_flat(const float* values) const {
  std::vector<float> copy(static_cast<std::size_t>(layout.count));
  backend.download(copy.data(), values, layout.count * size_of(DType::kF32));
  return copy;
}

void Trainer::State::zero_grads() {
  backend.fill(run.lora_grads(), 0, layout.count * size_of(DType::kF32));
}

std::string Trainer::State::name_bad_node(std::span<const TokenBatch> micro_batches) {
  // Nothing was updated, so running the graph again meets the same values.
  std::string found;
  for (std::size_t i = 0; i < micro_batches.size() && found.empty(); ++i) {
    zero_grads();
    main->copy_batch(micro_batches[i]);
    main->params().micro_step = static_cast<std::int32_t>(i);
    found = main->first_not_finite_node();
  }
  zero_grads();  // with accumulation the next step would add to what is not finite
  return found.empty() ? "the sum of the gradients" : found;
}

}  // namespace reprise
