// Builds without the CUDA Toolkit.
#include "reprise/runtime/backend.h"

namespace reprise {

std::unique_ptr<Backend> make_cuda_backend() {
  throw UsageError(
      "this build has no CUDA: configure with the CUDA Toolkit (preset cuda) on a machine with an "
      "NVIDIA GPU; --device cpu trains without one");
}

}  // namespace reprise
