// Token sequences that need no file, as functions of a seed and the step alone.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/runtime/token_batch.h"

namespace reprise::qlora_step {

struct MadeUpShape {
  std::int64_t vocab_size = 0;
  std::int64_t batch = 1;
  std::int64_t seq = 2;
  std::int64_t accumulate = 1;
};

// A made-up language of up to 64 words: each word has one successor, drawn from the seed, that
// follows it nine times in ten; otherwise any word follows. No sequence is ever seen twice, and the
// mean loss of a perfect reader is 0.74 (the entropy of that choice).
std::vector<TokenBatch> made_up_language(const MadeUpShape& shape, std::uint64_t seed,
                                         std::int64_t step);

// Uniform over the vocabulary: there is nothing to learn, only work to be timed.
std::vector<TokenBatch> random_tokens(const MadeUpShape& shape, std::uint64_t seed,
                                      std::int64_t step);

}  // namespace reprise::qlora_step
