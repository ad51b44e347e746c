// A run before anything is allocated: its graphs, their plans, and the memory that all of it takes.
#include <algorithm>

#include "graphs/run/step_options.h"

namespace reprise {

StepOptions step_options(const TrainerOptions& options, StepKind kind, const TableDtypes& tables) {
  return {.kind = kind,
          .shape = options.shape,
          .compute = options.compute,
          .embedding_dtype = tables.embedding,
          .head_dtype = tables.head,
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

namespace {

// Builds and plans the graphs of one run.
struct Planner {
  const ModelConfig& model;
  const TrainerOptions& options;
  const Backend& backend;
  TableDtypes tables;
  LoraLayout layout = make_lora_layout(model, options.lora);

  PlannedGraph plan(StepKind kind, const StepShape& shape, Reuse reuse = Reuse::kReuse) const {
    TrainerOptions with = options;
    with.shape = shape;
    PlannedGraph planned{build_step(model, layout, step_options(with, kind, tables)), {}};
    planned.plan = make_plan(planned.step.graph, backend.ops(), backend.threads(), reuse);
    return planned;
  }
};

}  // namespace

PlannedRun plan_run(const ModelConfig& model, const TrainerOptions& options, DType embedding_dtype,
                    const Backend& backend, const AlsoPlanned& also) {
  const Planner planner{model, options, backend, {embedding_dtype, embedding_dtype}};
  PlannedRun run;
  run.graphs.push_back(planner.plan(main_kind(options), options.shape));
  std::int64_t arena = run.graphs.front().plan.arena_bytes;
  std::int64_t live = run.graphs.front().plan.activation_bytes;
  if (options.shape.accumulate > 1) {
    run.graphs.push_back(planner.plan(StepKind::kUpdate, options.shape));
    arena = std::max(arena, run.graphs.back().plan.arena_bytes);
  }
  const StepShape one{.batch = options.shape.batch, .seq = options.shape.seq, .accumulate = 1};
  // Evaluation works in the arena of training, and in one of its own where that is too small.
  if (also.evaluation) {
    const std::int64_t bytes = planner.plan(StepKind::kEvaluate, one).plan.arena_bytes;
    if (bytes > arena) run.memory.other += bytes;
  }
  if (also.dump) {
    const PlannedGraph dump = planner.plan(StepKind::kDump, one, Reuse::kRetain);
    run.memory.other += dump.plan.arena_bytes;
    for (const Value& value : dump.step.graph.values) {
      if (value.kind == ValueKind::kResult) run.memory.other += value.bytes();
    }
  }
  // The rotary table: cosine and sine for each position and pair.
  run.memory.other += options.shape.seq * model.head_dim * size_of(DType::kF32);
  const std::int64_t flat = planner.layout.count * size_of(DType::kF32);
  run.memory.weights = weight_bytes(model, embedding_dtype) + cached_bytes(model, options);
  run.memory.adapters = 2 * flat;
  run.memory.optimizer = 2 * flat;
  run.memory.activations = live;
  run.memory.scratch = arena - std::min(arena, live);
  return run;
}

}  // namespace reprise
