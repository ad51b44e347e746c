// The state of building one step graph: forward.cpp, backward.cpp and update.cpp are its parts.
#pragma once

#include <string>
#include <vector>

#include "reprise/graphs/step_builder.h"

namespace reprise {

// What the forward pass of a layer leaves for its backward pass.
struct LayerActivations {
  ValueId hidden_in;                // F32 [M, C], input of the layer
  ValueId hidden_mid;               // F32 [M, C], after attention
  ValueId norm1, inv_rms1;          // input of q, k, v; recomputed in backward
  ValueId norm2, inv_rms2;          // input of gate, up; recomputed in backward
  ValueId q, k, v, attention, lse;  // q and k rotated
  ValueId gate, up, product;        // product = swiglu(gate, up); recomputed in backward
};

class StepBuilder {
 public:
  StepBuilder(const ModelConfig& model, const LoraLayout& layout, const StepOptions& options);
  StepGraph build() &&;

 private:
  // values.cpp: inputs, weights, trained state
  void add_inputs();
  void add_frozen();
  void add_trained();
  void add_results();

  // forward.cpp
  void forward();
  ValueId forward_layer(std::int64_t layer, ValueId hidden);
  void forward_attention(std::int64_t layer, LayerActivations& kept);
  ValueId forward_mlp(std::int64_t layer, LayerActivations& kept);
  ValueId norm(std::int64_t layer, ValueId x, ValueId weight, ValueId inv_rms, Pass pass);
  ValueId linear(std::int64_t layer, Projection projection, ValueId x);
  ValueId rope(std::int64_t layer, Projection projection, ValueId x, RopeDirection direction);
  ValueId swiglu(std::int64_t layer, const LayerActivations& kept, Pass pass);

  // backward.cpp
  void loss();
  void backward();
  void backward_mlp(std::int64_t layer);
  void backward_attention(std::int64_t layer);
  // Gradients of a projection's adapter and of its input. The shares of projections with the same
  // input accumulate in `grad_x`; where it is absent no input gradient is wanted.
  void backward_linear(std::int64_t layer, Projection projection, ValueId grad_y, ValueId x,
                       ValueId& grad_x, DType grad_x_dtype);
  // Adds the gradient of a norm's input to the gradient of the residual stream.
  void backward_norm(std::int64_t layer, ValueId grad_y, ValueId x, ValueId weight,
                     ValueId inv_rms);

  // update.cpp
  void update();

  bool is_dump() const { return options_.kind == StepKind::kDump; }
  bool has_backward() const;
  std::int64_t tokens() const { return options_.shape.tokens(); }
  AttentionShape attention_shape() const;
  DType activation() const { return activation_dtype(options_.compute); }
  ValueId add_activation(std::string name, DType dtype, Dims dims);
  void add(Op op, Pass pass, std::int64_t layer = -1, Projection projection = Projection::kNone);
  node::LoraTerm lora_term(std::int64_t layer, Projection projection) const;
  void dump(const std::string& prefix, std::int64_t layer, Projection projection, ValueId value);

  const ModelConfig& model_;
  const LoraLayout& layout_;
  StepOptions options_;
  Graph graph_;
  StepValues values_;
  std::vector<LayerActivations> kept_;                     // by layer
  std::vector<std::array<ValueId, kProjections>> lora_u_;  // by layer: u of adapted projections
  // By slot of the layout: parts of the flat buffers.
  std::vector<ValueId> lora_a_, lora_b_, grad_a_, grad_b_;
  ValueId last_hidden_, final_norm_y_, final_inv_rms_, grad_final_norm_y_;
  ValueId grad_hidden_;  // gradient of the residual stream at the point that backward has reached
};

}  // namespace reprise
