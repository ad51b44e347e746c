#include "runtime/model/hf_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"
#include "runtime/io/strict_json.h"

namespace reprise {
namespace {

using nlohmann::json;

bool has(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

// A list or object is worth showing as long as it is short.
std::string found_text(const json& value) {
  constexpr std::size_t kLongest = 200;
  const std::string text = value.is_structured() ? value.dump() : "";
  return text.empty() || text.size() > kLongest ? json_excerpt(value) : text;
}

// One config.json, with its name for messages.
struct ConfigFile {
  const json& object;
  std::string where;

  [[noreturn]] void refuse(const char* key, const std::string& known) const {
    throw InputError(where + ": " + key + " is " + found_text(object.at(key)) +
                     ", which would change the arithmetic; known: " + known);
  }
  // A key that may be absent or null, and otherwise must have this value.
  void only(const char* key, const json& allowed) const {
    if (has(object, key) && object.at(key) != allowed) refuse(key, allowed.dump());
  }
  std::int64_t size(const char* key) const {
    return json_integer(object, key, {0, std::int64_t{1} << 40}, where);
  }
};

Architecture read_architecture(const ConfigFile& config) {
  const std::string type = json_string(config.object, "model_type", config.where);
  if (type != "llama" && type != "qwen2") config.refuse("model_type", "llama, qwen2");
  const bool llama = type == "llama";
  if (has(config.object, "architectures")) {
    const json expected = json::array({llama ? "LlamaForCausalLM" : "Qwen2ForCausalLM"});
    if (config.object.at("architectures") != expected) {
      config.refuse("architectures", expected.dump());
    }
  }
  return llama ? Architecture::kLlama : Architecture::kQwen2;
}

void refuse_unknown_arithmetic(const ConfigFile& config, Architecture architecture) {
  config.only("hidden_act", "silu");
  config.only("use_sliding_window", false);
  // Dropout inside attention would act in training only, and nothing here draws it.
  if (has(config.object, "attention_dropout") &&
      json_number(config.object, "attention_dropout", config.where) != 0) {
    config.refuse("attention_dropout", "0");
  }
  config.only("mlp_bias", false);
  config.only("pretraining_tp", 1);
  config.only("partial_rotary_factor", 1.0);
  if (architecture == Architecture::kLlama) {
    config.only("attention_bias", false);
    if (has(config.object, "sliding_window")) config.refuse("sliding_window", "null");
  }
  if (has(config.object, "layer_types")) {
    const json& types = config.object.at("layer_types");
    if (!types.is_array()) config.refuse("layer_types", "a list of \"full_attention\"");
    for (const json& type : types) {
      if (type != "full_attention") config.refuse("layer_types", "\"full_attention\"");
    }
  }
}

void read_rope(const ConfigFile& config, ModelConfig& model) {
  const bool fresh = has(config.object, "rope_parameters");
  const bool scaled = has(config.object, "rope_scaling");
  if (fresh && scaled) config.refuse("rope_scaling", "either rope_parameters or rope_scaling");
  if (!fresh) {
    model.rope_theta = has(config.object, "rope_theta")
                           ? json_number(config.object, "rope_theta", config.where)
                           : 10000.0;  // transformers' default
    if (!scaled) return;
  }
  const char* key = fresh ? "rope_parameters" : "rope_scaling";
  const json& rope = config.object.at(key);
  const std::string where = config.where + ": " + key;
  if (!rope.is_object()) config.refuse(key, "an object");
  if (fresh) model.rope_theta = json_number(rope, "rope_theta", where);
  // "type" is the older name of "rope_type".
  const std::string type = has(rope, "rope_type") ? json_string(rope, "rope_type", where)
                           : has(rope, "type")    ? json_string(rope, "type", where)
                                                  : "default";
  if (has(rope, "rope_type") && has(rope, "type") && rope.at("type") != type) {
    config.refuse(key, "one rope_type");
  }
  std::vector<std::string> known = {"rope_type", "type", "rope_theta"};
  if (type == "llama3") {
    known.insert(known.end(), {"factor", "low_freq_factor", "high_freq_factor",
                               "original_max_position_embeddings"});
  }
  if (type == "default" || type == "llama3") {
    for (const auto& [name, value] : rope.items()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      throw InputError(where + ": " + in_quotes(name) + " is not known for rope_type " + type);
    }
  }
  if (type == "default") return;
  if (type != "llama3") config.refuse(key, "rope_type default, llama3");
  model.llama3_rope = Llama3Rope{.factor = json_number(rope, "factor", where),
                                 .low_freq_factor = json_number(rope, "low_freq_factor", where),
                                 .high_freq_factor = json_number(rope, "high_freq_factor", where),
                                 .original_max_position_embeddings =
                                     json_number(rope, "original_max_position_embeddings", where)};
  const Llama3Rope& r = *model.llama3_rope;
  if (!(r.factor >= 1 && r.low_freq_factor > 0 && r.high_freq_factor > r.low_freq_factor &&
        r.original_max_position_embeddings >= 1)) {
    config.refuse(key,
                  "factor >= 1, 0 < low_freq_factor < high_freq_factor, "
                  "original_max_position_embeddings >= 1");
  }
}

void check_quantization(const ConfigFile& config) {
  if (!has(config.object, "quantization_config")) return;
  const json& quantization = config.object.at("quantization_config");
  const std::string where = config.where + ": quantization_config";
  if (!quantization.is_object()) config.refuse("quantization_config", "an object");
  const auto expect = [&](const char* key, const json& value) {
    if (!has(quantization, key) || quantization.at(key) != value) {
      throw InputError(where + ": " + key + " is " +
                       (has(quantization, key) ? json_excerpt(quantization.at(key)) : "missing") +
                       ", expected " + value.dump());
    }
  };
  expect("quant_method", "bitsandbytes");
  expect("load_in_4bit", true);
  expect("bnb_4bit_quant_type", "nf4");
  if (has(quantization, "bnb_4bit_quant_storage")) expect("bnb_4bit_quant_storage", "uint8");
}

}  // namespace

ModelConfig read_hf_config(const std::filesystem::path& path) {
  const json object = read_strict_json(path);
  const std::string where = in_quotes(path);
  if (!object.is_object()) throw InputError(where + ": expected a JSON object");
  const ConfigFile config{object, where};
  ModelConfig model;
  model.architecture = read_architecture(config);
  refuse_unknown_arithmetic(config, model.architecture);
  model.vocab_size = config.size("vocab_size");
  model.hidden_size = config.size("hidden_size");
  model.intermediate_size = config.size("intermediate_size");
  model.num_hidden_layers = config.size("num_hidden_layers");
  model.num_attention_heads = config.size("num_attention_heads");
  model.num_key_value_heads = has(object, "num_key_value_heads")
                                  ? config.size("num_key_value_heads")
                                  : model.num_attention_heads;
  if (has(object, "head_dim")) {
    model.head_dim = config.size("head_dim");
  } else if (model.num_attention_heads > 0 && model.hidden_size % model.num_attention_heads == 0) {
    model.head_dim = model.hidden_size / model.num_attention_heads;
  } else {
    throw InputError(where + ": hidden_size " + std::to_string(model.hidden_size) +
                     " is no multiple of num_attention_heads " +
                     std::to_string(model.num_attention_heads) + " and there is no head_dim");
  }
  model.max_position_embeddings = config.size("max_position_embeddings");
  model.rms_norm_eps = json_number(object, "rms_norm_eps", where);
  read_rope(config, model);
  model.tie_word_embeddings =
      has(object, "tie_word_embeddings") && json_bool(object, "tie_word_embeddings", where);
  model.qkv_bias = model.architecture == Architecture::kQwen2;
  check_quantization(config);
  validate(model, where);
  return model;
}

}  // namespace reprise
