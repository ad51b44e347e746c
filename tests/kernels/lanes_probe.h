// The vector functions of one instruction set, over arrays of `count` elements, a multiple of 16:
// whole vectors of every set.
#pragma once

#include <cstdint>

#include "reprise/kernels/float16.h"

namespace reprise::test {

struct LanesProbe {
  std::int64_t lanes;
  void (*exponential)(const float* x, std::int64_t count, float* y);
  void (*narrow)(const float* x, std::int64_t count, BFloat16* y);
  void (*round_to_bf16)(const float* x, std::int64_t count, float* y);
  void (*widen)(const BFloat16* x, std::int64_t count, float* y);
  void (*transpose)(const std::int32_t* x, std::int32_t* y);  // [lanes, lanes]
  float (*sum_of)(const float* x);                            // of `lanes` elements
  float (*largest_of)(const float* x);
};

}  // namespace reprise::test

// What each build of lanes_probe_isa.cpp offers.
namespace reprise::cpu {
namespace generic {
test::LanesProbe lanes_probe();
}
#if defined(REPRISE_TEST_X86_64)
namespace avx2 {
test::LanesProbe lanes_probe();
}
namespace avx512 {
test::LanesProbe lanes_probe();
}
namespace avx512_bf16 {
test::LanesProbe lanes_probe();
}
namespace amx {
test::LanesProbe lanes_probe();
}
#endif
}  // namespace reprise::cpu
