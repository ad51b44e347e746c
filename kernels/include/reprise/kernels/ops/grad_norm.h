// grad_norm: norm[0] = sqrt(sum_i grads[i]^2), summed in double precision in a fixed order.
//
// clip: how the update that follows scales the gradient, and whether it happens at all.
//   decision[0] = min(1, max_norm / (norm + 1e-6)), or 1 when max_norm is 0 (as torch clips)
//   decision[1] = 1 if norm and every loss are finite, else 0: a step that is not finite is
//                 never applied
// No output may overlap an input or another output.
#pragma once

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct GradNormArgs {
  ConstView grads;  // F32 [P]
  View norm;        // F32 [1]
  Scratch scratch;
};

struct ClipArgs {
  ConstView norm;      // F32 [1]
  ConstView loss;      // F32 [accumulate]
  float max_norm = 0;  // 0: no clipping
  View decision;       // F32 [2]
};

Support check(const GradNormArgs& args);
Support check(const ClipArgs& args);

}  // namespace reprise
