// The words that kernel sources are written in. CUDA's own names keep their meaning in both builds:
// nvcc compiles them for a device, g++ for the emulator in kernels/simt. Beyond them there are only
//   REPRISE_SHARED(Type, name)          a __shared__ variable; an array is float[32]
//   REPRISE_DYNAMIC_SHARED(Type, name)  a pointer to the launch's dynamic shared memory, aligned to
//   16
// and, for launchers, simt::register_kernel and simt::failure_detail, which do nothing on a device.
#pragma once

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>

namespace reprise::device {
// Turns float[32] into a type that may stand before a variable's name.
template <class T>
using Same = T;
}  // namespace reprise::device

namespace reprise::simt {
template <class... Params>
inline void register_kernel(void (*)(Params...), const char*) {}
inline std::string failure_detail() { return {}; }
}  // namespace reprise::simt

#define REPRISE_SHARED(Type, name) __shared__ ::reprise::device::Same<Type> name
#define REPRISE_DYNAMIC_SHARED(Type, name)                                \
  extern __shared__ __align__(16) unsigned char reprise_dynamic_shared[]; \
  Type* const name = reinterpret_cast<Type*>(reprise_dynamic_shared)

#else

#include "kernels/simt/simt.h"

#endif
