// What the halves of the PEFT reader and writer share.
#pragma once

#include <string>

#include "reprise/runtime/lora.h"

namespace reprise {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";

// The text of adapter_config.json. An empty `base_model` becomes null.
std::string peft_config_text(const LoraConfig& lora, const std::string& base_model);

}  // namespace reprise
