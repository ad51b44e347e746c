#include "runtime/model/gguf_config.h"

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"

namespace reprise {
namespace {

// Keys below "<architecture>.".
struct ArchitectureKeys {
  const GgufFile& file;
  std::string prefix;

  bool has(const char* key) const { return file.has(prefix + key); }
  std::int64_t size(const char* key) const { return file.integer(prefix + key); }
  std::int64_t size_or(const char* key, std::int64_t absent) const {
    return has(key) ? size(key) : absent;
  }
  double number_or(const char* key, double absent) const {
    return has(key) ? file.number(prefix + key) : absent;
  }
  [[noreturn]] void refuse(const char* key, const std::string& found,
                           const std::string& expected) const {
    throw InputError(in_quotes(file.path()) + ": " + prefix + key + " is " + found +
                     ", which is not supported; expected " + expected);
  }
  void only_size(const char* key, std::int64_t allowed) const {
    if (has(key) && size(key) != allowed) {
      refuse(key, std::to_string(size(key)), std::to_string(allowed));
    }
  }
};

Architecture read_architecture(const GgufFile& file) {
  const std::string_view name = file.string("general.architecture");
  if (name == "llama") return Architecture::kLlama;
  if (name == "qwen2") return Architecture::kQwen2;
  throw InputError(in_quotes(file.path()) + ": general.architecture is " + in_quotes(name) +
                   ", which is not supported; supported: llama, qwen2");
}

void refuse_unknown_arithmetic(const ArchitectureKeys& keys, const ModelConfig& config) {
  keys.only_size("rope.dimension_count", config.head_dim);
  keys.only_size("attention.value_length", config.head_dim);
  keys.only_size("expert_count", 0);
  if (keys.has("rope.scaling.type")) {
    const std::string_view type = keys.file.string(keys.prefix + "rope.scaling.type");
    if (type != "none") keys.refuse("rope.scaling.type", in_quotes(type), "none");
  } else if (const double factor = keys.number_or("rope.scaling.factor", 1);
             factor != 0 && factor != 1) {
    // Without a type a factor means linear scaling; 0 stands for none.
    keys.refuse("rope.scaling.factor", std::to_string(factor), "1, or rope.scaling.type none");
  }
  // The older spelling of linear scaling.
  if (keys.number_or("rope.scale_linear", 1) != 1) {
    keys.refuse("rope.scale_linear", std::to_string(keys.number_or("rope.scale_linear", 1)), "1");
  }
  if (keys.file.find("rope_freqs.weight") != nullptr) {
    throw InputError(in_quotes(keys.file.path()) +
                     ": tensor rope_freqs.weight scales the rotary frequencies (Llama 3), which "
                     "is not supported yet in GGUF files");
  }
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  ModelConfig config;
  config.architecture = read_architecture(file);
  const bool qwen2 = config.architecture == Architecture::kQwen2;
  const ArchitectureKeys keys{file, qwen2 ? "qwen2." : "llama."};
  config.num_hidden_layers = keys.size("block_count");
  config.max_position_embeddings = keys.size("context_length");
  config.hidden_size = keys.size("embedding_length");
  config.intermediate_size = keys.size("feed_forward_length");
  config.num_attention_heads = keys.size("attention.head_count");
  config.num_key_value_heads = keys.size_or("attention.head_count_kv", config.num_attention_heads);
  if (config.num_attention_heads < 1) {
    keys.refuse("attention.head_count", std::to_string(config.num_attention_heads), "1 or more");
  }
  if (!keys.has("attention.key_length") && config.hidden_size % config.num_attention_heads != 0) {
    keys.refuse("attention.head_count", std::to_string(config.num_attention_heads),
                "a divisor of embedding_length " + std::to_string(config.hidden_size) +
                    ", or attention.key_length");
  }
  config.head_dim =
      keys.size_or("attention.key_length", config.hidden_size / config.num_attention_heads);
  config.rms_norm_eps = file.number(keys.prefix + "attention.layer_norm_rms_epsilon");
  config.rope_theta = keys.number_or("rope.freq_base", 10000);
  const GgufTensor& embedding = file.at("token_embd.weight");
  if (embedding.dims.size() != 2) {
    throw InputError(in_quotes(file.path()) + ": tensor token_embd.weight has " +
                     std::to_string(embedding.dims.size()) + " dimensions, expected 2");
  }
  config.vocab_size = embedding.dims[1];
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  config.qkv_bias = qwen2;
  refuse_unknown_arithmetic(keys, config);
  validate(config, in_quotes(file.path()));
  return config;
}

}  // namespace reprise
