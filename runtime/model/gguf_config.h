// A model's configuration from the metadata of a GGUF file.
#pragma once

#include "reprise/runtime/gguf.h"
#include "reprise/runtime/model_config.h"

namespace reprise {

// Refuses by name what the file says that would change the arithmetic and is not represented.
ModelConfig read_gguf_config(const GgufFile& file);

}  // namespace reprise
