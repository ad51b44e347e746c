#include "tests/runtime/golden_adapter.h"

namespace reprise::test {

using nlohmann::json;

ModelConfig golden_model(const std::string& name) {
  ModelConfig model;
  const bool qwen2 = name == "qwen2";
  model.architecture = qwen2 ? Architecture::kQwen2 : Architecture::kLlama;
  model.vocab_size = qwen2 ? 320 : 256;
  model.hidden_size = qwen2 ? 128 : 192;
  model.intermediate_size = 320;
  model.num_hidden_layers = 2;
  model.num_attention_heads = qwen2 ? 4 : 6;
  model.num_key_value_heads = 2;
  model.head_dim = 32;
  model.max_position_embeddings = 256;
  return model;
}

AdapterCopy::AdapterCopy() {
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    std::filesystem::copy(golden(kAdapter) / name, path() / name);
  }
}

json AdapterCopy::config() const { return json::parse(read_bytes(config_path())); }

void AdapterCopy::set(const char* key, const json& value) {
  json changed = config();
  changed[key] = value;
  write_bytes(config_path(), changed.dump());
}

void AdapterCopy::erase(const char* key) {
  json changed = config();
  changed.erase(key);
  write_bytes(config_path(), changed.dump());
}

void AdapterCopy::rewrite(const std::function<void(SafetensorsEntry&)>& change) {
  const SafetensorsFile file(golden(kAdapter) / "adapter_model.safetensors");
  std::vector<SafetensorsEntry> entries;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    SafetensorsEntry entry{tensor.name, tensor.dtype_name, tensor.shape, tensor.data};
    change(entry);
    if (!entry.name.empty()) entries.push_back(entry);
  }
  write_safetensors(weights_path(), entries);
}

}  // namespace reprise::test
