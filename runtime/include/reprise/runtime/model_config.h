// What decides the arithmetic of a model, from config.json, GGUF metadata, or a table of known
// shapes. Whatever a file says that is not represented here and would change a result is refused
// by name when the file is read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

enum class Architecture { kLlama, kQwen2 };

// The seven frozen projections of a decoder layer, in the order in which a step uses them.
enum class Projection : std::int8_t { kNone = -1, kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kProjections = 7;
inline constexpr std::array<Projection, kProjections> kAllProjections = {
    Projection::kQ,    Projection::kK,  Projection::kV,   Projection::kO,
    Projection::kGate, Projection::kUp, Projection::kDown};

const char* name_of(Projection projection);  // "q_proj"
std::optional<Projection> parse_projection(std::string_view name);
// Hugging Face's name of the module: "model.layers.3.self_attn.q_proj".
std::string module_name(std::int64_t layer, Projection projection);

// Llama 3's scaling of the rotary frequencies (Llama 3.1 model code, 2024).
struct Llama3Rope {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  std::optional<Llama3Rope> llama3_rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // Qwen2: q, k and v have biases

  std::int64_t in_features(Projection projection) const;
  std::int64_t out_features(Projection projection) const;
  bool has_bias(Projection projection) const;
  // Weights of the frozen projections, of all layers.
  std::int64_t projection_weights() const;
};

// Throws InputError, with `source` in front, when a number is out of range or two disagree
// (heads not divisible by kv heads, odd head_dim, sizes below 1 or above what any model has).
void validate(const ModelConfig& config, const std::string& source);

// cos and sin of every position and rotary pair: F32 [seq, head_dim / 2, 2], with llama3_rope
// applied.
std::vector<float> rope_table(const ModelConfig& config, std::int64_t seq);

// Known shapes for `--shape`: qwen2.5-0.5b, qwen2.5-1.5b, smollm2-135m, llama3.1-8b, and "tiny",
// the embedded default.
struct NamedShape {
  const char* name;
  ModelConfig config;
};
const std::vector<NamedShape>& known_shapes();
const NamedShape* find_shape(std::string_view name);

}  // namespace reprise
