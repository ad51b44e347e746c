// SwiGLU (Shazeer, 2020): y = silu(gate) * up, silu(t) = t * sigmoid(t).
//   grad_up   = grad_y * silu(gate)
//   grad_gate = grad_y * up * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate)))
// Beyond what is said below, no output may overlap an input or another output.
#pragma once

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct SwigluForwardArgs {
  ConstView gate;  // F32 or BF16 [M, F]
  ConstView up;    // same type [M, F]
  View y;          // same type [M, F]
};

struct SwigluBackwardArgs {
  ConstView grad_y;  // F32 or BF16 [M, F]
  ConstView gate;    // same type [M, F]
  ConstView up;      // same type [M, F]
  View grad_gate;    // same type [M, F]; may be the memory of gate
  View grad_up;      // same type [M, F]; may be the memory of up
};

Support check(const SwigluForwardArgs& args);
Support check(const SwigluBackwardArgs& args);

}  // namespace reprise
