// residual: y = a + b, in FP32. Its backward passes the gradient on unchanged and needs no op.
// y may be the memory of a, but overlap nothing else. fill: every element becomes `value`.
#pragma once

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct ResidualArgs {
  ConstView a;  // F32 [M, C]
  ConstView b;  // F32 or BF16 [M, C]
  View y;       // F32 [M, C]; may be the memory of a
};

struct FillArgs {
  View x;  // F32
  float value = 0;
};

Support check(const ResidualArgs& args);
Support check(const FillArgs& args);

}  // namespace reprise
