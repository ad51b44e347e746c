// config.json of a Hugging Face checkpoint.
#pragma once

#include <filesystem>

#include "reprise/runtime/model_config.h"

namespace reprise {

// Reads both spellings: `rope_parameters` of transformers 5 and `rope_theta`, `rope_scaling`
// before. Throws InputError naming file and key for anything that would change the arithmetic and
// is not known here.
ModelConfig read_hf_config(const std::filesystem::path& path);

}  // namespace reprise
