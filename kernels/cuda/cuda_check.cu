#include "kernels/cuda/cuda_check.h"

#include <string>

#include "kernels/device/device.h"
#include "reprise/kernels/error.h"

namespace reprise {

void cuda_check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  std::string message = std::string(call) + " failed: " + cudaGetErrorName(status) + ", " +
                        cudaGetErrorString(status);
  const std::string detail = simt::failure_detail();
  if (!detail.empty()) message += "\n" + detail;
  if (status == cudaErrorMemoryAllocation) throw DoesNotFit(message);
  throw Error(message);
}

}  // namespace reprise
