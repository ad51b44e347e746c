// A QLoRA run on one device: owns the adapter, the optimiser's state, the arena and the captured
// graphs. The frozen model belongs to the caller.
//
//   Trainer trainer(model, options, backend);
//   trainer.initialise(seed);
//   for (...) { StepResult r = trainer.step(micro_batches, learning_rate); }
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reprise/graphs/executor.h"
#include "reprise/graphs/step_builder.h"
#include "reprise/runtime/model.h"
#include "reprise/runtime/token_batch.h"

namespace reprise {

// kOff: every step runs eagerly. kAuto: captured if possible, otherwise eager (eager_reason() says
// why). kRequired: captured, or the first step throws.
enum class GraphMode : std::uint8_t { kOff, kAuto, kRequired };

struct TrainerOptions {
  StepShape shape;
  ComputeType compute = ComputeType::kF32;
  LoraConfig lora;
  AdamWOptions adamw;
  float clip = 1;
  bool prune = false;
  std::uint64_t seed = 0;  // of dropout
  GraphMode graph = GraphMode::kRequired;
  LinearMode linear = LinearMode::kFused;
};

struct StepResult {
  double loss = 0;       // mean over the valid target tokens of the step; 0 if there are none
  double grad_norm = 0;  // before clipping
  bool finite = true;    // false: nothing was updated
  std::string bad_node;  // the first node with a value that is not finite, when !finite
  std::int64_t target_tokens = 0;
};

struct EvaluationResult {
  double nll_sum = 0;
  std::int64_t target_tokens = 0;
};

// Bytes of a run before anything is allocated.
struct MemoryReport {
  std::int64_t weights = 0;
  std::int64_t adapters = 0;     // parameters and gradients
  std::int64_t optimizer = 0;    // both moments
  std::int64_t activations = 0;  // arena, without what only scratch needs
  std::int64_t scratch = 0;      // the rest of the arena
  std::int64_t other = 0;        // rotary table, arenas of evaluations and dumps
  std::int64_t total() const {
    return weights + adapters + optimizer + activations + scratch + other;
  }
};

struct PlannedGraph {
  StepGraph step;
  GraphPlan plan;
};

struct PlannedRun {
  std::vector<PlannedGraph>
      graphs;  // the step; or, with accumulation, the micro-step and the update
  MemoryReport memory;
};

// What a run does besides training.
struct AlsoPlanned {
  bool evaluation = false;
  bool dump = false;
};

PlannedRun plan_run(const ModelConfig& model, const TrainerOptions& options, DType embedding_dtype,
                    const Backend& backend, const AlsoPlanned& also);
std::string to_string(const MemoryReport& report);
// Throws DoesNotFit, saying what to reduce, when the total exceeds what `backend` has free.
void require_fits(const MemoryReport& report, Backend& backend);

class Trainer {
 public:
  // Plans, allocates, and captures on the first step. `model` and `backend` must outlive this; the
  // weights have to be where the backend can read them (place_model.h).
  Trainer(const Model& model, const TrainerOptions& options, Backend& backend);
  ~Trainer();

  // PEFT's initial adapter from a seed, moments zero, step 0.
  void initialise(std::uint64_t seed);

  // One optimiser step on options.shape.accumulate micro-batches. Throws Error when their shape is
  // not the captured one, InputError when a token id is outside the vocabulary.
  StepResult step(std::span<const TokenBatch> micro_batches, double learning_rate);

  // Changes nothing in training. Any sequence length up to options.shape.seq.
  EvaluationResult evaluate(const TokenBatch& batch);

  // Tokens that evaluate() and next_logits() take at the most.
  std::int64_t longest_sequence() const;

  // Logits of the last token of `tokens`, [vocab_size].
  std::vector<float> next_logits(std::span<const std::int32_t> tokens);

  // Runs step 1 unfused on `batch` without updating and returns its tensors, as FP32, under the
  // names of the golden data: loss, logits, grad.*, x.*, y.*, dx.*, dy.*.
  std::vector<std::pair<std::string, Tensor>> dump(const TokenBatch& batch);

  // Overwrites all activations with `byte`. Allowed between two steps: a replay reads nothing of
  // the last one.
  void poison_activations(std::uint8_t byte);

  const LoraLayout& layout() const;
  // Copies, in the order of layout().
  std::vector<float> lora_params() const;
  std::vector<float> lora_grads() const;
  void set_lora_params(std::span<const float> params);
  std::int64_t steps_done() const;
  // Why steps run eagerly although GraphMode::kAuto asked for a capture; "" if they don't.
  std::string eager_reason() const;
  // The graph of the step (accumulate == 1) or of the micro-step, with its plan.
  const StepGraph& step_graph() const;
  const GraphPlan& step_plan() const;
  // What the device's driver says the captured step consists of; empty before the first step and on
  // CPUs.
  std::vector<CapturedNode> device_nodes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise
