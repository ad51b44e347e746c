// Kernel launches: their limits, the copies of their arguments, and what is looked at before they
// run.
#include <cstring>
#include <map>

#include "kernels/simt/block_runner.h"
#include "kernels/simt/runtime_stream.h"

namespace reprise::simt {
namespace {

// What cudaFuncSetAttribute allowed beyond the default.
std::map<const void*, std::size_t>& dynamic_limits() {
  static std::map<const void*, std::size_t> limits;
  return limits;
}

std::size_t dynamic_limit(const void* function) {
  const auto found = dynamic_limits().find(function);
  return found == dynamic_limits().end() ? kMaxStaticSharedBytes : found->second;
}

std::string shape(const dim3& extent) {
  return std::to_string(extent.x) + " x " + std::to_string(extent.y) + " x " +
         std::to_string(extent.z);
}

cudaError_t check_shape(const KernelEntry& kernel, const cudaLaunchConfig_t& config) {
  const dim3 grid = config.gridDim;
  const dim3 block = config.blockDim;
  const std::uint64_t threads = static_cast<std::uint64_t>(block.x) * block.y * block.z;
  if (threads == 0 || threads > kMaxBlockThreads || block.x > 1024 || block.y > 1024 ||
      block.z > 64) {
    return refuse(cudaErrorInvalidConfiguration, std::string("kernel ") + kernel.name +
                                                     ": a block of " + shape(block) + " threads");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535) {
    return refuse(cudaErrorInvalidConfiguration,
                  std::string("kernel ") + kernel.name + ": a grid of " + shape(grid) + " blocks");
  }
  return cudaSuccess;
}

// A node of a graph keeps what it was captured with, also a pointer that was freed since.
cudaError_t check_pointers(const KernelWork& work) {
  for (std::size_t i = 0; i < work.arguments.size(); ++i) {
    const auto* const bytes = reinterpret_cast<const char*>(work.arguments[i].data());
    for (std::size_t at = 0; at + sizeof(void*) <= work.kernel->argument_bytes[i];
         at += sizeof(void*)) {
      const void* pointer = nullptr;
      std::memcpy(&pointer, bytes + at, sizeof pointer);
      const Allocation* const found = find_allocation(pointer);
      if (found == nullptr || found->live) continue;
      return refuse(cudaErrorIllegalAddress, std::string("kernel ") + work.kernel->name +
                                                 ": argument " + std::to_string(i) + " points to " +
                                                 describe_address(*found, pointer));
    }
  }
  return cudaSuccess;
}

KernelWork copy_launch(const KernelEntry& kernel, const cudaLaunchConfig_t& config,
                       const void* function, void** arguments) {
  KernelWork work{&kernel, function, config.gridDim, config.blockDim, config.dynamicSmemBytes, {}};
  for (std::size_t i = 0; i < kernel.argument_count; ++i) {
    const std::size_t bytes = kernel.argument_bytes[i];
    auto& copy = work.arguments.emplace_back(bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(copy.data(), arguments[i], bytes);
  }
  std::vector<void*> copies;
  for (auto& copy : work.arguments) copies.push_back(copy.data());
  kernel.clear_padding(copies.data());
  return work;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* function, void** arguments) {
  const KernelEntry* const kernel = find_kernel(function);
  if (kernel == nullptr) {
    return refuse(cudaErrorInvalidDeviceFunction, "a kernel that was not registered");
  }
  if (config.numAttrs != 0) return refuse(cudaErrorNotSupported, "launch attributes");
  const cudaError_t status = check_shape(*kernel, config);
  if (status != cudaSuccess) return status;
  if (config.dynamicSmemBytes > dynamic_limit(function)) {
    return refuse(cudaErrorInvalidValue,
                  std::string("kernel ") + kernel->name + ": " +
                      std::to_string(config.dynamicSmemBytes) +
                      " bytes of dynamic shared memory, the limit set for it is " +
                      std::to_string(dynamic_limit(function)));
  }
  return submit(config.stream, copy_launch(*kernel, config, function, arguments));
}

cudaError_t set_attribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;  // a hint
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return refuse(cudaErrorNotSupported, "a function attribute that is no size of shared memory");
  }
  if (value < 0 || static_cast<std::size_t>(value) > kMaxSharedBytes) {
    return refuse(cudaErrorInvalidValue, std::to_string(value) +
                                             " bytes of dynamic shared memory, the device has " +
                                             std::to_string(kMaxSharedBytes));
  }
  dynamic_limits()[function] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

}  // namespace

cudaError_t run_work(const Work& work) {
  if (const auto* kernel = std::get_if<KernelWork>(&work)) return run_kernel(*kernel);
  if (const auto* copy = std::get_if<CopyWork>(&work)) return run_copy(*copy);
  return run_fill(std::get<FillWork>(work));
}

cudaError_t run_kernel(const KernelWork& work) {
  const cudaError_t status = check_pointers(work);
  if (status != cudaSuccess) return status;
  // A kernel may write to its parameters, and every thread has its own.
  std::vector<void*> arguments;
  for (const auto& argument : work.arguments) {
    arguments.push_back(const_cast<std::max_align_t*>(argument.data()));
  }
  const FaultGuard guard;
  const std::string failure = run_grid(
      {work.kernel, work.function, arguments.data(), work.grid, work.block, work.dynamic_bytes});
  return failure.empty() ? cudaSuccess : refuse(cudaErrorLaunchFailure, failure);
}

}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  return entry([&] { return launch(*config, function, arguments); });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return entry([&] { return set_attribute(function, attribute, value); });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return entry([&] {
    *attributes = {};
    attributes->maxThreadsPerBlock = static_cast<int>(kMaxBlockThreads);
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_limit(function));
    attributes->ptxVersion = attributes->binaryVersion = 80;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return entry([&] {
    const KernelEntry* const kernel = find_kernel(function);
    if (kernel == nullptr) {
      return refuse(cudaErrorInvalidDeviceFunction, "a kernel that was not registered");
    }
    *name = kernel->name;
    return cudaSuccess;
  });
}
}
