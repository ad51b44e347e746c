// What the tests of the emulated device share: a launch, device arrays, and a clean device per
// test.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/simt/settings.h"

namespace reprise::test {

// Compares codes by name, so that a failure says what came instead.
inline void expect(cudaError_t expected, cudaError_t status) {
  BOOST_TEST(std::string(cudaGetErrorName(status)) == cudaGetErrorName(expected),
             cudaGetErrorString(status));
}
inline void expect_ok(cudaError_t status) { expect(cudaSuccess, status); }

// Restores settings and device around each test.
struct CleanDevice {
  simt::Settings before = simt::settings();
  CleanDevice() { simt::reset_device(); }
  ~CleanDevice() {
    simt::settings() = before;
    simt::reset_device();
    cudaGetLastError();
  }
};

struct Shape {
  dim3 grid = 1;
  dim3 block = 1;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), const Shape& shape, Args... args) {
  simt::register_kernel(kernel, "kernel_of_the_test");
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

// An array in the device's memory, freed with it.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    BOOST_REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)) == cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    expect_ok(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() {
    simt::reset_device();  // after a failed launch nothing could be freed
    cudaFree(data_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    expect_ok(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

// A stream that is not held up by the legacy stream.
class TestStream {
 public:
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) {
    expect_ok(cudaStreamCreateWithFlags(&handle_, flags));
  }
  ~TestStream() {
    simt::reset_device();
    cudaStreamDestroy(handle_);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

class TestEvent {
 public:
  TestEvent() { expect_ok(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming)); }
  ~TestEvent() { cudaEventDestroy(handle_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

inline void expect_detail(const std::string& part) {
  const std::string detail = simt::failure_detail();
  BOOST_TEST(detail.find(part) != std::string::npos, detail << " does not say: " << part);
}

}  // namespace reprise::test
