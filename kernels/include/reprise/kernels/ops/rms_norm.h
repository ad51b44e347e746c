// RMS normalisation over the last dimension (Zhang and Sennrich, 2019), with a frozen weight.
//   inv_rms[m] = 1 / sqrt(mean_c(x[m, c]^2) + eps)
//   y[m, c]    = x[m, c] * inv_rms[m] * weight[c]
//   grad_x     = inv_rms * (g - x * inv_rms^2 * mean_c(g * x)),  g = grad_y * weight
// No output may overlap an input or another output.
#pragma once

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct RmsNormForwardArgs {
  ConstView x;       // F32 [M, C]
  ConstView weight;  // F32 [C]
  float eps = 0;
  View y;        // F32 or BF16 [M, C]
  View inv_rms;  // F32 [M]
};

struct RmsNormBackwardArgs {
  ConstView grad_y;   // F32 [M, C]
  ConstView x;        // F32 [M, C]
  ConstView weight;   // F32 [C]
  ConstView inv_rms;  // F32 [M], from the forward pass
  View grad_x;        // F32 [M, C]
  OutputMode mode = OutputMode::kOverwrite;
};

Support check(const RmsNormForwardArgs& args);
Support check(const RmsNormBackwardArgs& args);

}  // namespace reprise
