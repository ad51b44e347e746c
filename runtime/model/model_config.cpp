// Names, sizes and sanity of a model's configuration.
#include "reprise/runtime/model_config.h"

#include "reprise/kernels/error.h"

namespace reprise {
namespace {

struct ProjectionName {
  Projection projection;
  const char* name;
  const char* parent;  // module that holds it
};

constexpr std::array<ProjectionName, kProjections> kNames = {{
    {Projection::kQ, "q_proj", "self_attn"},
    {Projection::kK, "k_proj", "self_attn"},
    {Projection::kV, "v_proj", "self_attn"},
    {Projection::kO, "o_proj", "self_attn"},
    {Projection::kGate, "gate_proj", "mlp"},
    {Projection::kUp, "up_proj", "mlp"},
    {Projection::kDown, "down_proj", "mlp"},
}};

const ProjectionName& entry(Projection projection) {
  return kNames[static_cast<std::size_t>(projection)];
}

}  // namespace

const char* name_of(Projection projection) {
  return projection == Projection::kNone ? "none" : entry(projection).name;
}

std::optional<Projection> parse_projection(std::string_view name) {
  for (const ProjectionName& known : kNames) {
    if (name == known.name) return known.projection;
  }
  return std::nullopt;
}

std::string module_name(std::int64_t layer, Projection projection) {
  const ProjectionName& known = entry(projection);
  return "model.layers." + std::to_string(layer) + "." + known.parent + "." + known.name;
}

std::int64_t ModelConfig::in_features(Projection projection) const {
  switch (projection) {
    case Projection::kO:
      return num_attention_heads * head_dim;
    case Projection::kDown:
      return intermediate_size;
    default:
      return hidden_size;
  }
}

std::int64_t ModelConfig::out_features(Projection projection) const {
  switch (projection) {
    case Projection::kQ:
      return num_attention_heads * head_dim;
    case Projection::kK:
    case Projection::kV:
      return num_key_value_heads * head_dim;
    case Projection::kGate:
    case Projection::kUp:
      return intermediate_size;
    default:
      return hidden_size;
  }
}

bool ModelConfig::has_bias(Projection projection) const {
  return qkv_bias && (projection == Projection::kQ || projection == Projection::kK ||
                      projection == Projection::kV);
}

std::int64_t ModelConfig::projection_weights() const {
  std::int64_t count = 0;
  for (const Projection p : kAllProjections) count += in_features(p) * out_features(p);
  return count * num_hidden_layers;
}

void validate(const ModelConfig& config, const std::string& source) {
  // Bounds that no published model comes near; they keep every product of two sizes below 2^63.
  struct Range {
    const char* key;
    std::int64_t value, largest;
  };
  const Range ranges[] = {
      {"vocab_size", config.vocab_size, 1 << 24},
      {"hidden_size", config.hidden_size, 1 << 20},
      {"intermediate_size", config.intermediate_size, 1 << 22},
      {"num_hidden_layers", config.num_hidden_layers, 1 << 12},
      {"num_attention_heads", config.num_attention_heads, 1 << 12},
      {"num_key_value_heads", config.num_key_value_heads, 1 << 12},
      {"head_dim", config.head_dim, 1 << 12},
      {"max_position_embeddings", config.max_position_embeddings, std::int64_t{1} << 31},
  };
  for (const Range& range : ranges) {
    if (range.value >= 1 && range.value <= range.largest) continue;
    throw InputError(source + ": " + range.key + " is " + std::to_string(range.value) +
                     ", expected 1 to " + std::to_string(range.largest));
  }
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    throw InputError(
        source + ": num_attention_heads " + std::to_string(config.num_attention_heads) +
        " is no multiple of num_key_value_heads " + std::to_string(config.num_key_value_heads));
  }
  if (config.head_dim % 2 != 0) {
    throw InputError(source + ": head_dim " + std::to_string(config.head_dim) +
                     " is odd, rotary embeddings need pairs");
  }
  if (!(config.rms_norm_eps > 0 && config.rms_norm_eps < 1)) {
    throw InputError(source + ": rms_norm_eps is " + std::to_string(config.rms_norm_eps) +
                     ", expected a number between 0 and 1");
  }
  if (!(config.rope_theta >= 1 && config.rope_theta < 1e12)) {
    throw InputError(source + ": rope_theta is " + std::to_string(config.rope_theta) +
                     ", expected 1 to 1e12");
  }
}

}  // namespace reprise
