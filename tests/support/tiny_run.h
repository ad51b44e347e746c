// A model of a few thousand weights and batches for it: small enough for the reference ops.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reprise/graphs/trainer.h"
#include "tests/support/random.h"

namespace reprise::test {

// Two layers, grouped key/value heads, biases, K no multiple of 64, tied embeddings.
ModelConfig tiny_config();

// Random ids; about a fifth of the labels is masked.
TokenBatch random_batch(Random& random, std::int64_t batch, std::int64_t seq,
                        std::int64_t vocab_size);
// The rows of all batches, one below the other.
TokenBatch stack(const std::vector<TokenBatch>& batches);

struct NamedBackend {
  std::string name;
  std::function<std::unique_ptr<Backend>(LinearMode)> make;
};
// The reference ops, and the CPU's for every instruction set that this machine has.
std::vector<NamedBackend> test_backends();

// Options for tiny_config() with small rank; the learning rate is given to step().
TrainerOptions tiny_options(std::int64_t batch, std::int64_t seq);

}  // namespace reprise::test
