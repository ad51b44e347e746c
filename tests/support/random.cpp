#include "tests/support/random.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>

namespace reprise::test {

std::uint64_t Random::bits() {
  state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

std::int64_t Random::between(std::int64_t low, std::int64_t high) {
  const auto span = static_cast<std::uint64_t>(high - low) + 1;
  return low + static_cast<std::int64_t>(bits() % span);
}

std::uint64_t test_seed(std::uint64_t default_seed) {
  const char* text = std::getenv("REPRISE_TEST_SEED");
  const std::uint64_t seed = text ? std::strtoull(text, nullptr, 0) : default_seed;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::vector<float> normal_values(Random& random, std::int64_t count, double scale) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(scale * random.normal());
  return values;
}

}  // namespace reprise::test
