// The memory of one step graph besides its arena and its frozen weights: the parameter block, the
// tokens and the results. Where the backend's memory is not the host's, the host writes inputs to
// and reads results from a copy of its own, which goes over as one piece.
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

// A block in the memory of the backend together with what the host sees of it.
class SharedBlock {
 public:
  SharedBlock() = default;
  SharedBlock(std::int64_t bytes, const std::string& what, Backend& backend);

  std::byte* data() const { return device_.data(); }
  // The host's place of an address in the block.
  void* host(const void* address) const;
  void upload(Backend& backend) const;
  void download(Backend& backend) const;

 private:
  Buffer device_;
  Buffer host_;  // empty where the backend's memory is the host's
};

// One graph, ready to run: its inputs and results, bound to an arena.
class StepMemory {
 public:
  // `inputs_of` shares the parameter block and the losses of another graph (an update's
  // micro-step); null: own ones.
  // `run` must outlive this.
  StepMemory(StepGraph step, GraphPlan plan, const RunMemory& run, std::byte* arena,
             Backend& backend, StepMemory* inputs_of = nullptr);

  const StepGraph& step() const { return *step_; }
  BoundGraph& bound() { return *bound_; }
  // Takes effect with the next run.
  StepParams& params();
  // Where a value is, in the memory of the backend.
  View view(ValueId id) const { return bound_->view(id); }
  // What the host sees of a result; as of the last fetch_results().
  View result(ValueId id) const;
  void fetch_results() { results_.download(bound_->backend()); }

  // Throws Error when the shape is another, InputError when an id or a label is outside the
  // vocabulary.
  void require_batch(const TokenBatch& batch, std::int64_t vocab_size) const;
  // Copies tokens and shifted labels in, after require_batch().
  void set_batch(const TokenBatch& batch, std::int64_t vocab_size);
  // The same for a batch that has passed it.
  void copy_batch(const TokenBatch& batch);

  // Replays the captured graph, or runs eagerly when `mode` is kOff, or kAuto and the capture
  // failed. The first replay captures.
  void run(GraphMode mode);
  const std::string& eager_reason() const { return eager_reason_; }
  // Runs eagerly on the inputs as they are, and names the first node that writes a NaN or infinity.
  std::string first_not_finite_node();
  // Null before the first replay.
  const CapturedGraph* captured() const { return captured_.get(); }

 private:
  void capture();

  std::unique_ptr<StepGraph> step_;  // its address must not change
  const RunMemory& run_;
  SharedBlock inputs_;
  SharedBlock results_;
  std::unique_ptr<BoundGraph> bound_;
  std::unique_ptr<CapturedGraph> captured_;
  std::string eager_reason_;  // why it could not be captured
};

}  // namespace reprise
