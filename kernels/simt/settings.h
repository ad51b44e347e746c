// How the emulated device behaves where CUDA leaves it open, read once from the environment:
//   REPRISE_SIMT_ORDER=fifo|reverse|random:SEED   order of threads, blocks and graph nodes
//   REPRISE_SIMT_MEMORY=bytes                     size of the device's memory
#pragma once

#include <cstdint>

namespace reprise::simt {

enum class Order : std::uint8_t { kFifo, kReverse, kRandom };

struct Settings {
  Order order = Order::kFifo;
  std::uint64_t seed = 1;
  std::uint64_t memory_bytes = 0;  // the host's memory unless set
};

// Throws std::invalid_argument for a value that is none of the above, at the first call. Tests
// change what is returned.
Settings& settings();

// The next number of the one seeded sequence behind everything random; below `bound`.
std::uint64_t random_below(std::uint64_t bound);
void seed_random(std::uint64_t seed);

}  // namespace reprise::simt
