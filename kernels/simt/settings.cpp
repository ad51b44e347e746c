// Reads the settings, and the random sequence that they seed.
#include "kernels/simt/settings.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace reprise::simt {
namespace {

std::uint64_t state = 0;

[[noreturn]] void reject(const char* name, std::string_view value, const char* expected) {
  throw std::invalid_argument(std::string(name) + "=" + std::string(value) + ": expected " +
                              expected);
}

std::uint64_t parse(const char* name, std::string_view text, std::string_view value,
                    const char* expected) {
  std::uint64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) reject(name, value, expected);
  return number;
}

void read_order(Settings& out, std::string_view value) {
  const char* expected = "fifo, reverse or random:SEED";
  constexpr std::string_view kRandomPrefix = "random:";
  if (value == "fifo") {
    out.order = Order::kFifo;
  } else if (value == "reverse") {
    out.order = Order::kReverse;
  } else if (value.starts_with(kRandomPrefix)) {
    out.order = Order::kRandom;
    out.seed = parse("REPRISE_SIMT_ORDER", value.substr(kRandomPrefix.size()), value, expected);
  } else {
    reject("REPRISE_SIMT_ORDER", value, expected);
  }
}

Settings read() {
  Settings out;
  out.memory_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (const char* order = std::getenv("REPRISE_SIMT_ORDER")) read_order(out, order);
  if (const char* bytes = std::getenv("REPRISE_SIMT_MEMORY")) {
    out.memory_bytes = parse("REPRISE_SIMT_MEMORY", bytes, bytes, "a number of bytes");
  }
  seed_random(out.seed);
  return out;
}

}  // namespace

Settings& settings() {
  static Settings only = read();
  return only;
}

void seed_random(std::uint64_t seed) { state = seed; }

std::uint64_t random_below(std::uint64_t bound) {
  // splitmix64: any seed will do, also 0. The bias of the remainder is below 2^-32 for our bounds.
  state += 0x9e3779b97f4a7c15ull;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (z ^ (z >> 31)) % bound;
}

}  // namespace reprise::simt
