// A (micro-)batch of token ids, row-major [batch, seq].
#pragma once

#include <cstdint>
#include <vector>

namespace reprise {

// Labels are unshifted, as Hugging Face has them: labels[t] is the token at position t, or -100;
// the loss of position t is on labels[t + 1].
struct TokenBatch {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::vector<std::int32_t> input_ids;
  std::vector<std::int32_t> labels;
  std::int64_t real_tokens = 0;  // positions that are not padding

  // Positions that carry loss.
  std::int64_t target_tokens() const;
};

}  // namespace reprise
