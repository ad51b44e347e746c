// Models in GGUF files: llama and qwen2 architectures.
#pragma once

#include "reprise/runtime/model.h"

namespace reprise {

ModelConfig load_gguf_config(const std::filesystem::path& path);
Model load_gguf_model(const std::filesystem::path& path, const LoadOptions& options);

}  // namespace reprise
