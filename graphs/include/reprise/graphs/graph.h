// The training step as data: a list of typed nodes over typed values. The order of the list is the
// order of execution; a node may update a value in place (it then reads and writes it). Nothing
// here holds memory: a plan (plan.h) places the activations in one arena, bindings (executor.h)
// give the rest.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "reprise/kernels/op_table.h"
#include "reprise/runtime/model_config.h"

namespace reprise {

// Index of a value in its graph; default: no value (an optional operand that is absent).
struct ValueId {
  std::int32_t index = -1;
  bool present() const { return index >= 0; }
  bool operator==(const ValueId&) const = default;
};

enum class ValueKind : std::uint8_t {
  kInput,       // written by the host before a replay: tokens, labels, the parameter block
  kFrozen,      // weights and tables that never change
  kFrozenNf4,   // a weight in NF4; dims are [N, K]
  kTrained,     // adapter parameters and the optimiser's state: persist from step to step
  kActivation,  // lives in the arena from its first write to its last use
  kResult,      // persists until the host has read it: loss, norms, and what a dump asked for
};

struct Value {
  std::string name;  // "layers.3.q", "grad.layers.3.q"
  DType dtype = DType::kF32;
  Dims dims;
  ValueKind kind = ValueKind::kActivation;
  ValueId parent;  // present: a part of another value, `offset` bytes into it
  std::int64_t offset = 0;
  // Layout of a kFrozenNf4 value.
  std::int64_t nf4_block_size = 64;
  NibbleOrder nf4_order = NibbleOrder::kHighFirst;

  std::int64_t bytes() const { return dims.count() * size_of(dtype); }
};

// The nodes. Members that are ValueId are operands, in the words of the kernel's own arguments.
namespace node {
struct EmbeddingForward {
  ValueId ids, table, y;
};
struct RmsNormForward {
  ValueId x, weight, y, inv_rms;
  float eps = 0;
};
struct RmsNormBackward {
  ValueId grad_y, x, weight, inv_rms, grad_x;
  OutputMode mode = OutputMode::kOverwrite;
};
// What the forward op, the gradient of its input and the gradients of its adapter share.
struct LoraTerm {
  ValueId a, b;  // absent: the projection has no adapter
  float scale = 0;
  float dropout = 0;
  std::uint32_t site = 0;
  ValueId params;  // present when dropout > 0
};
struct LinearNf4Forward {
  ComputeType compute = ComputeType::kF32;
  ValueId x, weight, cached_weight, bias, u, y;
  LoraTerm lora;
};
struct LinearNf4Backward {
  ComputeType compute = ComputeType::kF32;
  ValueId grad_y, weight, cached_weight, grad_u, grad_x;
  LoraTerm lora;
  OutputMode mode = OutputMode::kOverwrite;
};
struct LoraBackward {
  ComputeType compute = ComputeType::kF32;
  ValueId grad_y, x, u, grad_u, grad_a, grad_b;
  LoraTerm lora;
  OutputMode mode = OutputMode::kOverwrite;
};
struct Rope {
  ValueId x, table, y;
  std::int64_t heads = 0;
  RopeDirection direction = RopeDirection::kForward;
};
struct AttentionForward {
  ComputeType compute = ComputeType::kF32;
  AttentionShape shape;
  ValueId q, k, v, out, lse;
};
struct AttentionBackward {
  ComputeType compute = ComputeType::kF32;
  AttentionShape shape;
  ValueId grad_out, q, k, v, out, lse, grad_q, grad_k, grad_v;
};
struct SwigluForward {
  ValueId gate, up, y;
};
struct SwigluBackward {
  ValueId grad_y, gate, up, grad_gate, grad_up;
};
struct Residual {
  ValueId a, b, y;
};
struct CrossEntropy {
  ComputeType compute = ComputeType::kF32;
  ValueId x, weight, labels, params, loss, nll, grad_x;
};
struct LmHead {
  ComputeType compute = ComputeType::kF32;
  ValueId x, weight, logits;
};
struct GradNorm {
  ValueId grads, norm;
};
struct Clip {
  ValueId norm, loss, decision;
  float max_norm = 0;
};
struct AdamW {
  ValueId params, grads, exp_avg, exp_avg_sq, decision, step_params;
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
};
struct Fill {
  ValueId x;
  float value = 0;
};
}  // namespace node

using Op =
    std::variant<node::EmbeddingForward, node::RmsNormForward, node::RmsNormBackward,
                 node::LinearNf4Forward, node::LinearNf4Backward, node::LoraBackward, node::Rope,
                 node::AttentionForward, node::AttentionBackward, node::SwigluForward,
                 node::SwigluBackward, node::Residual, node::CrossEntropy, node::LmHead,
                 node::GradNorm, node::Clip, node::AdamW, node::Fill>;

enum class Pass : std::uint8_t { kForward, kLoss, kBackward, kUpdate };
const char* name_of(Pass pass);  // "forward"

struct Node {
  Op op;
  Pass pass = Pass::kForward;
  std::int64_t layer = -1;  // -1: outside the decoder layers
  Projection projection = Projection::kNone;
};

const char* op_name(const Op& op);  // "linear_nf4_backward"

enum class Access : std::uint8_t { kRead, kWrite, kReadWrite };
struct Operand {
  const char* role;  // "grad_y"
  ValueId value;
  Access access;
  bool reads() const { return access != Access::kWrite; }
  bool writes() const { return access != Access::kRead; }
};
// The operands that are present, in the order of the node's members.
std::vector<Operand> operands(const Op& op);

struct Graph {
  std::string name;  // "train_step qwen2.5-1.5b 1x512"
  std::vector<Value> values;
  std::vector<Node> nodes;

  ValueId add_value(Value value);
  // A part of `parent`, at `offset_bytes` into it; has its kind.
  ValueId add_part(ValueId parent, std::string name, Dims dims, std::int64_t offset_bytes);
  void add_node(Node node) { nodes.push_back(std::move(node)); }

  const Value& value(ValueId id) const { return values.at(static_cast<std::size_t>(id.index)); }
  // The value whose memory `id` lies in: itself, or the outermost parent.
  ValueId storage(ValueId id) const;
};

// Throws Error naming the node when a value is read before it is written, an operand is out of
// range or of a kind that may not be written, a part leaves its parent, or an op's own contract
// (its `check`) is not met.
void verify(const Graph& graph);

}  // namespace reprise
