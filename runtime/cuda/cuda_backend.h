// A CUDA device as a backend: one stream of its own, memory by cudaMalloc, capture into a graph.
// The same source serves a real device and the emulated one.
#pragma once

#include <memory>

#include "reprise/runtime/backend.h"

namespace reprise::cuda {

// `kind`: "cuda" or "emulated", the first word of its name. Throws UsageError saying what is
// missing when there is no driver, no device, or none that the build has code for.
std::unique_ptr<Backend> make_backend(const char* kind);

}  // namespace reprise::cuda
