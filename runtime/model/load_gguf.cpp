#include "runtime/model/load_gguf.h"

#include "reprise/kernels/error.h"

namespace reprise {
ModelConfig load_gguf_config(const std::filesystem::path&) { throw InputError("GGUF"); }
Model load_gguf_model(const std::filesystem::path&, const LoadOptions&) {
  throw InputError("GGUF");
}
}  // namespace reprise
