// What a kernel source sees where g++ compiles it for the emulated device: CUDA's types and host
// calls from CUDA's own headers, and all that those headers leave to nvcc from here.
//
// Everything runs on the one host thread that forced the work, under the runtime's lock, so plain
// objects stand for what is a register on a device.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/simt/half_intrinsics.h"
#include "kernels/simt/intrinsics.h"
#include "kernels/simt/kernel_table.h"
#include "kernels/simt/vocabulary.h"

// The static object only lends its address: a name for the variable, one per instantiation.
#define REPRISE_SHARED(Type, name)                                                         \
  static char name##_key;                                                                  \
  auto& name = *static_cast<std::type_identity_t<Type>*>(::reprise::simt::shared_variable( \
      &name##_key, sizeof(std::type_identity_t<Type>), alignof(std::type_identity_t<Type>)))
#define REPRISE_DYNAMIC_SHARED(Type, name) \
  Type* const name = static_cast<Type*>(::reprise::simt::dynamic_shared())
