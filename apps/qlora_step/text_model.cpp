#include "apps/qlora_step/text_model.h"

namespace reprise::qlora_step {

std::unique_ptr<const TextModel> text_model(const Options&) { return nullptr; }
int print_tokens(const TextModel&, const std::filesystem::path&, std::ostream&) { return 0; }

}  // namespace reprise::qlora_step
