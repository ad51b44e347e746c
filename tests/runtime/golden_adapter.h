// The golden adapters, and copies of one that a test may damage.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "reprise/runtime/lora.h"
#include "reprise/runtime/safetensors.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {

// The shapes of the golden models, see tests/data/README.md: "qwen2" or "llama".
ModelConfig golden_model(const std::string& name);

inline const std::string kAdapter = "qwen2/train-nf4/adapter-init";

class AdapterCopy {
 public:
  AdapterCopy();
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path config_path() const { return path() / "adapter_config.json"; }
  std::filesystem::path weights_path() const { return path() / "adapter_model.safetensors"; }
  // Changes one member of the configuration.
  void set(const char* key, const nlohmann::json& value);
  void erase(const char* key);
  // Writes the golden weights, each entry as `change` leaves it; an empty name drops it.
  void rewrite(const std::function<void(SafetensorsEntry&)>& change);

 private:
  nlohmann::json config() const;

  TemporaryFolder folder_;
};

}  // namespace reprise::test
