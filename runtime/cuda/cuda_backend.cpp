#include "runtime/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_check.h"
#include "reprise/kernels/cuda_ops.h"
#include "runtime/cuda/cuda_handle.h"
#include "runtime/cuda/graph_capture.h"

namespace reprise::cuda {
namespace {

// CUDA 13 has no code for anything older.
constexpr int kOldestArchitecture = 75;

constexpr const char* kAlternatives =
    "; --device cpu trains without a GPU, --device emulated runs the CUDA kernels on the CPU";

void release(std::byte* data, std::int64_t) noexcept {
  const cudaError_t status = cudaFree(data);
  // Nothing can be thrown here. A device that failed before fails again here, and has been
  // reported.
  if (status != cudaSuccess) std::fprintf(stderr, "cudaFree: %s\n", cudaGetErrorString(status));
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::string name, Stream stream)
      : name_(std::move(name)), ops_(cuda_ops()), stream_(std::move(stream)) {}

  const std::string& name() const override { return name_; }
  const OpTable& ops() const override { return ops_; }
  int threads() const override { return 1; }
  Execution execution() override { return {.pool = nullptr, .stream = stream_.get()}; }

  Buffer allocate(std::int64_t bytes, const std::string& what) override {
    if (bytes == 0) return {};
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw DoesNotFit("cannot allocate " + readable_size(bytes) + " for " + what + " on " + name_ +
                       ": reduce --batch or --seq (activations), or --rank");
    }
    cuda_check(status, "cudaMalloc");
    return {static_cast<std::byte*>(memory), bytes, release};
  }

  std::int64_t available_bytes() override {
    std::size_t available = 0, total = 0;
    cuda_check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(available);
  }

  bool host_memory() const override { return false; }

  void upload(void* device, const void* host, std::int64_t bytes) override {
    if (bytes == 0) return;
    // From pageable memory: the runtime has taken the bytes when the call returns.
    cuda_check(cudaMemcpyAsync(device, host, static_cast<std::size_t>(bytes),
                               cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync to the device");
  }

  void download(void* host, const void* device, std::int64_t bytes) override {
    if (bytes == 0) return;
    cuda_check(cudaMemcpyAsync(host, device, static_cast<std::size_t>(bytes),
                               cudaMemcpyDeviceToHost, stream_.get()),
               "cudaMemcpyAsync from the device");
    cuda_check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }

  void fill(void* device, std::uint8_t byte, std::int64_t bytes) override {
    if (bytes == 0) return;
    cuda_check(cudaMemsetAsync(device, byte, static_cast<std::size_t>(bytes), stream_.get()),
               "cudaMemsetAsync");
  }

  std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) override {
    return capture_graph(stream_.get(), work);
  }

 private:
  std::string name_;
  OpTable ops_;
  Stream stream_;
};

cudaDeviceProp current_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    const std::string why = status == cudaSuccess ? "no device" : cudaGetErrorString(status);
    throw UsageError("no CUDA device can be used (" + why + ")" + kAlternatives);
  }
  int device = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties;
}

}  // namespace

std::unique_ptr<Backend> make_backend(const char* kind) {
  const cudaDeviceProp device = current_device();
  const int architecture = 10 * device.major + device.minor;
  const std::string name =
      std::string(kind) + " (" + device.name + ", sm_" + std::to_string(architecture) + ")";
  if (architecture < kOldestArchitecture) {
    throw UsageError(name + " is not supported: there is code from sm_" +
                     std::to_string(kOldestArchitecture) + " on" + kAlternatives);
  }
  cudaStream_t stream = nullptr;
  // Blocking streams are coupled to the legacy stream, which no capture survives.
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  return std::make_unique<CudaBackend>(name, Stream(stream));
}

}  // namespace reprise::cuda
