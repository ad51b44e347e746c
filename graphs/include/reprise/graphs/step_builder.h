// Builds the graphs of a QLoRA training run on a Llama- or Qwen2-shaped model.
//
// With accumulate == 1 a step is one graph: forward, loss, backward, norm, clip, AdamW. With more,
// a micro-step graph adds into one flat gradient buffer and an update graph follows; a
// data-parallel all-reduce of that buffer will go between the two.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "reprise/graphs/graph.h"
#include "reprise/runtime/lora.h"

namespace reprise {

struct StepShape {
  std::int64_t batch = 1;       // sequences in a (micro-)batch
  std::int64_t seq = 128;       // tokens in a sequence, padding included
  std::int64_t accumulate = 1;  // micro-batches in a step
  std::int64_t tokens() const { return batch * seq; }
};

struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;
};

enum class StepKind : std::uint8_t {
  kTrain,      // the whole step in one graph (accumulate == 1)
  kMicroStep,  // forward, loss, backward; adds to the gradients (accumulate > 1)
  kUpdate,     // norm, clip, AdamW, gradients back to zero (accumulate > 1)
  kEvaluate,   // forward and the loss of each token; no gradient
  kHidden,     // forward up to the final norm, for sampling
  kDump,       // kTrain without the update, full logits, every value kept apart
};

struct StepOptions {
  StepKind kind = StepKind::kTrain;
  StepShape shape;
  ComputeType compute = ComputeType::kF32;
  DType embedding_dtype = DType::kF32;
  DType head_dtype = DType::kF32;  // the embedding's when they are tied
  LoraConfig lora;
  AdamWOptions adamw;
  float clip = 1;       // 0: no clipping
  bool prune = false;   // drop nodes that nothing reads: dX of q, k and v in layer 0
  bool cached = false;  // --linear cached: projections get a dequantised twin
};

// The values that the runtime binds and the host reads.
struct StepValues {
  ValueId input_ids, labels, step_params;              // inputs
  ValueId embedding, lm_head, final_norm, rope_table;  // frozen; lm_head == embedding if tied
  struct Layer {
    ValueId input_norm, post_attention_norm;
    std::array<ValueId, kProjections> weight, cached_weight, bias;
  };
  std::vector<Layer> layers;
  ValueId lora_params, lora_grads, exp_avg, exp_avg_sq;    // trained, flat
  ValueId loss, nll, grad_norm, decision, logits, hidden;  // results
  // kDump only: values by the golden data's names ("x.model.layers.0.mlp.down_proj", "dx.embed").
  std::vector<std::pair<std::string, ValueId>> dump;
};

struct StepGraph {
  Graph graph;
  StepValues values;
  StepOptions options;
};

StepGraph build_step(const ModelConfig& model, const LoraLayout& layout,
                     const StepOptions& options);

}  // namespace reprise
