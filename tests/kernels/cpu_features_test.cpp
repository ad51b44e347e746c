// Names of instruction sets, and detection against what the kernel reports of the CPU.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "reprise/kernels/cpu_ops.h"

namespace reprise::test {
namespace {

std::set<std::string> kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

BOOST_AUTO_TEST_SUITE(cpu_features)

BOOST_AUTO_TEST_CASE(names_are_read_back) {
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    BOOST_TEST((parse_isa(name_of(isa)) == isa), name_of(isa));
  }
  for (const char* name : {"", "AVX2", "avx", "avx512 ", "avx512_bf16x", "?"}) {
    BOOST_TEST(!parse_isa(name).has_value(), name);
  }
}

BOOST_AUTO_TEST_CASE(detection_agrees_with_the_kernel) {
  const std::set<std::string> flags = kernel_flags();
  if (flags.empty()) {
    BOOST_TEST_MESSAGE("skipped: the kernel lists no flags of the CPU");
    return;
  }
  const auto all = [&flags](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(),
                       [&flags](const char* name) { return flags.count(name) == 1; });
  };
  const bool avx2 = all({"avx2", "fma", "f16c", "bmi2"});
  const bool avx512 = avx2 && all({"avx512f", "avx512dq", "avx512bw", "avx512vl"});
  const bool bf16 = avx512 && all({"avx512_bf16"});
  const bool amx = bf16 && all({"amx_tile", "amx_bf16"});
  BOOST_TEST((detect_isa() >= Isa::kAvx2) == avx2);
  BOOST_TEST((detect_isa() >= Isa::kAvx512) == avx512);
  BOOST_TEST((detect_isa() >= Isa::kAvx512Bf16) == bf16);
  // Listed tiles may still be refused to the process, never the other way round.
  BOOST_TEST((detect_isa() < Isa::kAmx || amx));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
