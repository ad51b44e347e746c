// The tensors of a first step as a safetensors file, under the names of the golden data.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "reprise/runtime/buffer.h"

namespace reprise::qlora_step {

void write_dump(const std::filesystem::path& path,
                const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace reprise::qlora_step
