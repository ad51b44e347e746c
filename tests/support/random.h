// Reproducible random data. Every test prints the seed it uses; REPRISE_TEST_SEED overrides it.
#pragma once

#include <cstdint>
#include <vector>

namespace reprise::test {

// SplitMix64: small, seedable, the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  double uniform();                                           // [0, 1)
  double normal();                                            // mean 0, variance 1
  std::int64_t between(std::int64_t low, std::int64_t high);  // both included

 private:
  std::uint64_t state_;
};

// The test's own seed, or REPRISE_TEST_SEED from the environment; printed to stdout.
std::uint64_t test_seed(std::uint64_t default_seed);

std::vector<float> normal_values(Random& random, std::int64_t count, double scale = 1);

}  // namespace reprise::test
