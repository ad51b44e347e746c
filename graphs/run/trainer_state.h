// What a Trainer owns: buffers, the graphs of a step, and those of evaluation and sampling.
#pragma once

#include <map>

#include "graphs/run/step_memory.h"

namespace reprise {

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
  // The vocabulary head over one row, for sampling; made when first needed.
  struct Head {
    LmHeadArgs args;
    Buffer logits;
    Buffer scratch;
    void (*run)(const LmHeadArgs&, const Execution&) = nullptr;
  };
  Head head;
  std::int64_t steps_done = 0;

  State(const Model& frozen, const TrainerOptions& wanted, Backend& place);

  StepGraph build(const TrainerOptions& with, StepKind kind) const;
  GraphPlan plan(const StepGraph& step, Reuse reuse = Reuse::kReuse) const {
    return make_plan(step.graph, backend.ops(), backend.threads(), reuse);
  }
  // The graph for a forward pass over batch x seq tokens. It shares the training arena where it
  // fits: between two steps nothing in there is needed.
  StepMemory& forward_graph(StepKind kind, std::int64_t batch, std::int64_t seq);
  // Logits of one row of hidden states.
  std::vector<float> head_logits(const ConstView& row);
  // Runs a step that was not finite once more, to find the first value that is not.
  std::string name_bad_node(std::span<const TokenBatch> micro_batches);
  // A host copy of one of the flat buffers.
  std::vector<float> read_flat(const float* values) const;
  void zero_grads();

 private:
  void make_rope_table();
  void make_cached_weights();
  void build_main();
  void make_head();
};

}  // namespace reprise
