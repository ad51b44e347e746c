// Turns a failed call of the CUDA runtime into an error.
#pragma once

#include <cuda_runtime_api.h>

namespace reprise {

// `call`: the function or kernel, named in the message. Throws DoesNotFit when memory has run out.
void cuda_check(cudaError_t status, const char* call);

}  // namespace reprise
