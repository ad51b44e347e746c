// CUDA's implementations. Execution::stream is a cudaStream_t, and every pointer of an op's
// arguments, StepParams included, is one of the device: the host never reads through them.
#pragma once

#include "reprise/kernels/op_table.h"

namespace reprise {

OpTable cuda_ops();

}  // namespace reprise
