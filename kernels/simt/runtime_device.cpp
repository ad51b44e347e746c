// The one device: its properties, limits and versions. It claims compute capability 8.0, the lowest
// that has all the instructions which the emulator models.
#include <algorithm>
#include <string_view>

#include "kernels/simt/block_runner.h"
#include "kernels/simt/runtime.h"
#include "kernels/simt/runtime_stream.h"

namespace reprise::simt {
namespace {

constexpr int kMultiprocessors = 8;
constexpr int kMajor = 8;
constexpr int kMinor = 0;

cudaError_t check_device(int device) {
  if (device == 0) return cudaSuccess;
  return refuse(cudaErrorInvalidDevice, "the emulated device has number 0");
}

cudaError_t attribute(int& value, cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor:
      value = kMajor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      value = kMinor;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      value = kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      value = static_cast<int>(kWarpLanes);
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock:
      value = static_cast<int>(kMaxBlockThreads);
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      value = 2048;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      value = static_cast<int>(kMaxStaticSharedBytes);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      value = static_cast<int>(kMaxSharedBytes);
      return cudaSuccess;
    default:
      return refuse(cudaErrorNotSupported, "device attribute " +
                                               std::to_string(static_cast<int>(which)) +
                                               " of the emulated device");
  }
}

void fill(cudaDeviceProp& properties) {
  properties = {};
  constexpr std::string_view kName = "emulated device";
  std::copy(kName.begin(), kName.end(), properties.name);
  properties.totalGlobalMem = settings().memory_bytes;
  properties.major = kMajor;
  properties.minor = kMinor;
  properties.multiProcessorCount = kMultiprocessors;
  properties.warpSize = static_cast<int>(kWarpLanes);
  properties.maxThreadsPerBlock = static_cast<int>(kMaxBlockThreads);
  properties.maxThreadsPerMultiProcessor = 2048;
  properties.sharedMemPerBlock = kMaxStaticSharedBytes;
  properties.sharedMemPerBlockOptin = kMaxSharedBytes;
  properties.sharedMemPerMultiprocessor = kMaxSharedBytes + 1024;
  properties.unifiedAddressing = 1;
  const int sizes[] = {1024, 1024, 64};
  const int grids[] = {2147483647, 65535, 65535};
  std::copy(std::begin(sizes), std::end(sizes), properties.maxThreadsDim);
  std::copy(std::begin(grids), std::end(grids), properties.maxGridSize);
}

}  // namespace
}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return entry([&] {
    *count = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return entry([&] { return check_device(device); });
}

cudaError_t cudaGetDevice(int* device) {
  return entry([&] {
    *device = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return entry([&] {
    const cudaError_t status = check_device(device);
    if (status == cudaSuccess) fill(*properties);
    return status;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return entry([&] {
    const cudaError_t status = check_device(device);
    return status == cudaSuccess ? attribute(*value, which) : status;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return entry([&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return entry([&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return entry([&] {
    *total_bytes = settings().memory_bytes;
    *free_bytes = *total_bytes - std::min(*total_bytes, live_device_bytes());
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return entry([&] {
    const cudaError_t status = refuse_while_any_capture("cudaDeviceSynchronize");
    return status == cudaSuccess ? drain_all() : status;
  });
}
}
