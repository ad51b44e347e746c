#include "reprise/runtime/token_batch.h"

#include "reprise/kernels/ops/cross_entropy.h"

namespace reprise {

std::int64_t TokenBatch::target_tokens() const {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < batch * seq; ++i) {
    const bool has_predecessor = i % seq != 0;
    if (has_predecessor && labels[static_cast<std::size_t>(i)] != kIgnoredLabel) ++count;
  }
  return count;
}

}  // namespace reprise
