// The comparison path of the frozen linear layers: a library GEMM on dequantised weights. Built
// from onednn_linear.cpp where oneDNN is found, else from no_onednn_linear.cpp, whose entries
// refuse.
#pragma once

#include "reprise/kernels/cpu_ops.h"

namespace reprise::cpu {

// `mode` is kDequant or kCached; `isa` is used for dequantising and converting, the library chooses
// its own instructions.
void append_onednn_linear(LinearMode mode, Isa isa, OpTable& table);

}  // namespace reprise::cpu
