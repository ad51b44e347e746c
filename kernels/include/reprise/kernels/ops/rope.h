// Rotary position embedding (Su et al., 2021), halves as in Hugging Face: dimension d of a head is
// paired with d + D/2. Position of row m is m % seq.
//   y[d]       = x[d] * cos[d] - x[d + D/2] * sin[d]
//   y[d + D/2] = x[d + D/2] * cos[d] + x[d] * sin[d]
// kInverse rotates the other way, which is the backward pass. y may be exactly the memory of x, but
// overlap nothing else.
#pragma once

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

enum class RopeDirection { kForward, kInverse };

struct RopeArgs {
  ConstView x;      // F32 or BF16 [M, H * D]
  ConstView table;  // F32 [seq, D/2, 2]: cos, sin
  std::int64_t heads = 0;
  RopeDirection direction = RopeDirection::kForward;
  View y;  // like x
};

Support check(const RopeArgs& args);

}  // namespace reprise
