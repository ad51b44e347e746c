#include "apps/qlora_step/sample.h"

namespace reprise::qlora_step {

std::string answer(Trainer&, const TextModel&, const std::string&, std::int64_t) { return {}; }
int print_nll(Trainer&, const TextModel&, const std::filesystem::path&, std::int64_t,
              std::ostream&) {
  return 0;
}

}  // namespace reprise::qlora_step
