// Shapes of published models, from their config.json, for runs on random weights.
#include "reprise/runtime/model_config.h"

namespace reprise {

const std::vector<NamedShape>& known_shapes() {
  static const std::vector<NamedShape> shapes = {
      {"tiny",
       {.architecture = Architecture::kQwen2,
        .vocab_size = 256,
        .hidden_size = 128,
        .intermediate_size = 320,
        .num_hidden_layers = 4,
        .num_attention_heads = 4,
        .num_key_value_heads = 2,
        .head_dim = 32,
        .max_position_embeddings = 512,
        .rms_norm_eps = 1e-6,
        .rope_theta = 1e4,
        .llama3_rope = {},
        .tie_word_embeddings = true,
        .qkv_bias = true}},
      {"smollm2-135m",
       {.architecture = Architecture::kLlama,
        .vocab_size = 49152,
        .hidden_size = 576,
        .intermediate_size = 1536,
        .num_hidden_layers = 30,
        .num_attention_heads = 9,
        .num_key_value_heads = 3,
        .head_dim = 64,
        .max_position_embeddings = 8192,
        .rms_norm_eps = 1e-5,
        .rope_theta = 1e5,
        .llama3_rope = {},
        .tie_word_embeddings = true,
        .qkv_bias = false}},
      {"qwen2.5-0.5b",
       {.architecture = Architecture::kQwen2,
        .vocab_size = 151936,
        .hidden_size = 896,
        .intermediate_size = 4864,
        .num_hidden_layers = 24,
        .num_attention_heads = 14,
        .num_key_value_heads = 2,
        .head_dim = 64,
        .max_position_embeddings = 32768,
        .rms_norm_eps = 1e-6,
        .rope_theta = 1e6,
        .llama3_rope = {},
        .tie_word_embeddings = true,
        .qkv_bias = true}},
      {"qwen2.5-1.5b",
       {.architecture = Architecture::kQwen2,
        .vocab_size = 151936,
        .hidden_size = 1536,
        .intermediate_size = 8960,
        .num_hidden_layers = 28,
        .num_attention_heads = 12,
        .num_key_value_heads = 2,
        .head_dim = 128,
        .max_position_embeddings = 32768,
        .rms_norm_eps = 1e-6,
        .rope_theta = 1e6,
        .llama3_rope = {},
        .tie_word_embeddings = true,
        .qkv_bias = true}},
      {"llama3.1-8b",
       {.architecture = Architecture::kLlama,
        .vocab_size = 128256,
        .hidden_size = 4096,
        .intermediate_size = 14336,
        .num_hidden_layers = 32,
        .num_attention_heads = 32,
        .num_key_value_heads = 8,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .rms_norm_eps = 1e-5,
        .rope_theta = 5e5,
        .llama3_rope = Llama3Rope{},
        .tie_word_embeddings = false,
        .qkv_bias = false}},
  };
  return shapes;
}

const NamedShape* find_shape(std::string_view name) {
  for (const NamedShape& shape : known_shapes()) {
    if (name == shape.name) return &shape;
  }
  return nullptr;
}

}  // namespace reprise
