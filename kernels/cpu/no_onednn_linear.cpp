// Stands in for onednn_linear.cpp in a build without oneDNN.
#include "kernels/cpu/onednn_linear.h"

namespace reprise::cpu {
namespace {

template <class Args>
Support refuse(const Args&) {
  return Support::no("built without oneDNN");
}

}  // namespace

void append_onednn_linear(LinearMode mode, Isa, OpTable& table) {
  const char* name = mode == LinearMode::kCached ? "cpu.onednn.cached" : "cpu.onednn.dequant";
  table.linear_nf4_forward.push_back({.name = name, .supports = refuse<LinearNf4ForwardArgs>});
  table.linear_nf4_backward.push_back({.name = name, .supports = refuse<LinearNf4BackwardArgs>});
}

}  // namespace reprise::cpu
