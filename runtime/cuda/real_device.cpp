// The CUDA device of the machine, in builds with the CUDA Toolkit.
#include "runtime/cuda/cuda_backend.h"

namespace reprise {

std::unique_ptr<Backend> make_cuda_backend() { return cuda::make_backend("cuda"); }

}  // namespace reprise
