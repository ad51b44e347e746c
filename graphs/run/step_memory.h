// The memory of one step graph besides its arena and its frozen weights: the parameter block, the
// tokens and the results.
#pragma once

#include "reprise/graphs/executor.h"
#include "reprise/graphs/step_builder.h"
#include "reprise/graphs/trainer.h"
#include "reprise/runtime/model.h"

namespace reprise {

// What every graph of a run shares.
struct RunMemory {
  const Model* model = nullptr;
  Buffer trained;  // lora_params, lora_grads, exp_avg, exp_avg_sq, one after another
  std::int64_t trained_count = 0;
  Buffer rope_table;  // for the longest sequence so far planned
  std::int64_t rope_positions = 0;
  // --linear cached: the dequantised twins of the projections, by layer and projection.
  std::vector<std::array<Buffer, kProjections>> cached;

  float* lora_params() const { return reinterpret_cast<float*>(trained.data()); }
  float* lora_grads() const { return lora_params() + trained_count; }
  float* exp_avg() const { return lora_params() + 2 * trained_count; }
  float* exp_avg_sq() const { return lora_params() + 3 * trained_count; }
};

// One graph, ready to run: its inputs and results, bound to an arena.
class StepMemory {
 public:
  // `inputs_of` shares the parameter block and the losses of another graph (an update's
  // micro-step); null: own ones.
  StepMemory(StepGraph step, GraphPlan plan, const RunMemory& run, std::byte* arena,
             Backend& backend, StepMemory* inputs_of = nullptr);

  const StepGraph& step() const { return *step_; }
  BoundGraph& bound() { return *bound_; }
  StepParams& params() {
    return *static_cast<StepParams*>(bound_->view(step_->values.step_params).data);
  }
  View view(ValueId id) const { return bound_->view(id); }

  // Copies tokens and shifted labels in. Throws Error when the shape is another, InputError when an
  // id or a label is outside the vocabulary.
  void set_batch(const TokenBatch& batch, std::int64_t vocab_size);

  // Replays the captured graph, or runs eagerly when `mode` is kOff.
  void run(GraphMode mode);

 private:
  std::unique_ptr<StepGraph> step_;  // its address must not change
  Buffer inputs_;
  Buffer results_;
  std::unique_ptr<BoundGraph> bound_;
  std::unique_ptr<CapturedGraph> captured_;
};

// Copies a value of F32 or BF16 into an owned FP32 tensor.
Tensor fp32_copy(const View& view, const std::string& name);

}  // namespace reprise
