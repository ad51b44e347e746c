#include "runtime/io/temporary_name.h"

#include <cstdint>
#include <random>

namespace reprise {

std::string make_temporary_name() {
  static constexpr char kHex[] = "0123456789abcdef";
  std::random_device source;  // the system's random numbers
  std::uint64_t bits = (std::uint64_t{source()} << 32) | source();
  std::string digits;
  for (int i = 0; i < 16; ++i, bits >>= 4) digits += kHex[bits & 15];
  return ".reprise-" + digits + ".tmp";
}

}  // namespace reprise
