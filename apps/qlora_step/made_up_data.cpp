#include "apps/qlora_step/made_up_data.h"

#include <algorithm>
#include <numeric>

namespace reprise::qlora_step {
namespace {

constexpr std::int64_t kWords = 64;
constexpr std::uint64_t kSurpriseIn = 10;  // one transition in ten is not the usual one

// SplitMix64: the same on every machine, unlike the distributions of the standard library.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Below `limit`; the bias of the remainder is below 2^-40 for limits of a vocabulary's size.
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(limit));
  }

 private:
  std::uint64_t state_;
};

std::vector<std::int32_t> shuffled(std::int64_t count, Draws& draws) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = count - 1; i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(draws.below(i + 1))]);
  }
  return order;
}

// Fills the batches of a step with next(previous word, or -1 at the begin of a sequence).
template <class Next>
std::vector<TokenBatch> fill(const MadeUpShape& shape, Next&& next) {
  std::vector<TokenBatch> batches(static_cast<std::size_t>(shape.accumulate));
  for (TokenBatch& batch : batches) {
    batch = {.batch = shape.batch,
             .seq = shape.seq,
             .input_ids = {},
             .labels = {},
             .real_tokens = shape.batch * shape.seq};
    for (std::int64_t row = 0; row < shape.batch; ++row) {
      std::int32_t token = -1;
      for (std::int64_t t = 0; t < shape.seq; ++t) {
        token = next(token);
        batch.input_ids.push_back(token);
      }
    }
    batch.labels = batch.input_ids;
  }
  return batches;
}

Draws draws_of_step(std::uint64_t seed, std::int64_t step) {
  Draws mixed(seed ^ 0x73746570u);  // apart from the draws that made the language
  return Draws(mixed.bits() + static_cast<std::uint64_t>(step) * 0xD1B54A32D192ED03u);
}

}  // namespace

std::vector<TokenBatch> made_up_language(const MadeUpShape& shape, std::uint64_t seed,
                                         std::int64_t step) {
  Draws language(seed);
  const std::vector<std::int32_t> tokens = shuffled(shape.vocab_size, language);
  const std::int64_t words = std::min(kWords, shape.vocab_size);
  // One cycle through all words, so that no word leads back into a short loop.
  std::vector<std::int32_t> successor(static_cast<std::size_t>(shape.vocab_size), 0);
  for (std::int64_t i = 0; i < words; ++i) {
    const auto next = static_cast<std::size_t>((i + 1) % words);
    successor[static_cast<std::size_t>(tokens[static_cast<std::size_t>(i)])] = tokens[next];
  }
  Draws draws = draws_of_step(seed, step);
  return fill(shape, [&](std::int32_t previous) {
    const bool surprise = previous < 0 || draws.bits() % kSurpriseIn == 0;
    return surprise ? tokens[static_cast<std::size_t>(draws.below(words))]
                    : successor[static_cast<std::size_t>(previous)];
  });
}

std::vector<TokenBatch> random_tokens(const MadeUpShape& shape, std::uint64_t seed,
                                      std::int64_t step) {
  Draws draws = draws_of_step(seed, step);
  return fill(shape, [&](std::int32_t) {
    return static_cast<std::int32_t>(draws.below(shape.vocab_size));
  });
}

}  // namespace reprise::qlora_step
