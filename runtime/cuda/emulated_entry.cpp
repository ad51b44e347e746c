// The only symbol that libreprise_emulated.so exports.
#include "runtime/cuda/cuda_backend.h"

extern "C" __attribute__((visibility("default"))) reprise::Backend* reprise_emulated_device() {
  return reprise::cuda::make_backend("emulated").release();
}
