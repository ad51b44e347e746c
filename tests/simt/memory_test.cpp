// Memory of the device: poison, limits, copies, shared memory that is exactly what was asked for.
#include <cstdint>
#include <cstring>

#include "tests/simt/device.h"

namespace reprise::test {
namespace {

__global__ void poisoned_shared(unsigned* out) {
  REPRISE_SHARED(unsigned[4], fixed);
  REPRISE_DYNAMIC_SHARED(unsigned, dynamic);
  if (blockIdx.x == 0) {
    out[0] = fixed[3];
    out[1] = dynamic[7];
  } else {
    out[2] = fixed[3];
    out[3] = dynamic[7];
  }
  fixed[3] = dynamic[7] = 5;  // which the next block must not find
}

struct alignas(64) Aligned {
  float values[16];
};
__global__ void alignments(unsigned* out) {
  REPRISE_SHARED(float, single);
  REPRISE_SHARED(Aligned, wide);
  REPRISE_DYNAMIC_SHARED(char, dynamic);
  out[0] = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(&single) % 8);
  out[1] = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(&wide) % 128);
  out[2] = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(dynamic) % 32);
}

__global__ void nothing(int) {}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(memory, CleanDevice)

BOOST_AUTO_TEST_CASE(fresh_memory_is_poisoned) {
  const DeviceArray<unsigned> fresh(5);
  for (const unsigned value : fresh.read()) BOOST_TEST(value == 0xffffffffu);
  const DeviceArray<unsigned> out(std::vector<unsigned>(4, 0));
  expect_ok(launch(poisoned_shared, {2, 1, 32}, out.data()));
  for (const unsigned value : out.read()) BOOST_TEST(value == 0xffffffffu);
}

BOOST_AUTO_TEST_CASE(shared_memory_is_aligned_as_declared_and_no_better) {
  const DeviceArray<unsigned> out(3);
  expect_ok(launch(alignments, {1, 1, 16}, out.data()));
  BOOST_TEST(out.read() == (std::vector<unsigned>{4, 64, 16}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(memory_ends) {
  std::size_t free_before = 0;
  std::size_t total = 0;
  simt::settings().memory_bytes = 1 << 20;
  expect_ok(cudaMemGetInfo(&free_before, &total));
  BOOST_TEST(total == std::size_t{1} << 20);
  void* large = nullptr;
  void* more = &large;
  expect_ok(cudaMalloc(&large, free_before - 1000));
  expect(cudaErrorMemoryAllocation, cudaMalloc(&more, 2000));
  BOOST_TEST(more == nullptr);
  expect_detail("2000 bytes, ");
  expect(cudaErrorMemoryAllocation, cudaGetLastError());  // which is gone then
  expect_ok(cudaGetLastError());
  expect(cudaErrorMemoryAllocation, cudaMalloc(&more, SIZE_MAX));
  std::size_t free_now = 0;
  expect_ok(cudaMemGetInfo(&free_now, &total));
  BOOST_TEST(free_now < 1001);
  expect_ok(cudaFree(large));
  expect_ok(cudaMemGetInfo(&free_now, &total));
  BOOST_TEST(free_now == free_before);
}

BOOST_AUTO_TEST_CASE(only_live_allocations_are_freed) {
  void* device = nullptr;
  void* pinned = nullptr;
  expect_ok(cudaMalloc(&device, 100));
  expect_ok(cudaMallocHost(&pinned, 100));
  expect(cudaErrorInvalidValue, cudaFree(pinned));
  expect(cudaErrorInvalidValue, cudaFreeHost(device));
  expect(cudaErrorInvalidValue, cudaFree(static_cast<char*>(device) + 1));
  expect_ok(cudaFree(device));
  expect(cudaErrorInvalidValue, cudaFree(device));
  expect_ok(cudaFreeHost(pinned));
  expect_ok(cudaFree(nullptr));
}

BOOST_AUTO_TEST_CASE(copies_stay_in_allocations) {
  const DeviceArray<char> array(std::vector<char>(10, 'a'));
  std::vector<char> host(20, 'b');
  expect(cudaErrorInvalidValue, cudaMemcpy(array.data(), host.data(), 11, cudaMemcpyHostToDevice));
  expect_detail("destination of a copy, 11 bytes: byte 0 of allocation");
  expect(cudaErrorInvalidValue,
         cudaMemcpy(host.data(), array.data() + 1, 10, cudaMemcpyDeviceToHost));
  expect(cudaErrorInvalidValue, cudaMemcpy(array.data(), host.data(), 4, cudaMemcpyDeviceToDevice));
  expect_detail("source of a copy, 4 bytes: no device memory");
  expect(cudaErrorInvalidValue, cudaMemcpy(array.data(), array.data(), 4, cudaMemcpyHostToDevice));
  expect_detail("source of a copy of the host: byte 0 of allocation");
  expect(cudaErrorInvalidValue, cudaMemsetAsync(array.data(), 0, 11, nullptr));
  expect_ok(cudaMemcpy(array.data() + 8, host.data(), 2, cudaMemcpyDefault));
  expect_ok(cudaMemcpy(host.data(), array.data(), 10, cudaMemcpyDefault));
  BOOST_TEST(std::string(host.data(), 20) == "aaaaaaaabbbbbbbbbbbb");
  expect_ok(cudaMemsetAsync(array.data(), 'c', 9, nullptr));
  BOOST_TEST(std::string(array.read().data(), 10) == "cccccccccb");
}

BOOST_AUTO_TEST_CASE(launches_have_limits) {
  const auto status = [](const dim3& grid, const dim3& block, std::size_t shared) {
    return launch(nothing, {grid, block, shared}, 0);
  };
  expect_ok(status(1, 1024, 0));
  expect(cudaErrorInvalidConfiguration, status(1, 1025, 0));
  expect(cudaErrorInvalidConfiguration, status(1, dim3(33, 32), 0));
  expect(cudaErrorInvalidConfiguration, status(1, dim3(1, 1, 65), 0));
  expect(cudaErrorInvalidConfiguration, status(0, 1, 0));
  expect(cudaErrorInvalidConfiguration, status(1, 0, 0));
  expect(cudaErrorInvalidConfiguration, status(dim3(1, 65536), 1, 0));
  expect_ok(status(dim3(1, 65535), 1, 0));

  const auto* const function = reinterpret_cast<const void*>(&nothing);
  const auto set = [&](int bytes) {
    return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  expect_ok(status(1, 1, 49152));
  expect(cudaErrorInvalidValue, status(1, 1, 49153));
  expect_detail("the limit set for it is 49152");
  expect(cudaErrorInvalidValue, set(163 * 1024 + 1));
  expect_ok(set(50000));
  expect_ok(status(1, 1, 50000));
  expect(cudaErrorInvalidValue, status(1, 1, 50001));
  expect_ok(set(49152));
  expect_ok(cudaDeviceSynchronize());

  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = 1;
  expect(cudaErrorInvalidDeviceFunction, cudaLaunchKernelExC(&config, &config, nullptr));
}

BOOST_AUTO_TEST_CASE(the_device_says_what_it_is) {
  int count = 0;
  expect_ok(cudaGetDeviceCount(&count));
  BOOST_TEST(count == 1);
  expect(cudaErrorInvalidDevice, cudaSetDevice(1));
  cudaDeviceProp properties{};
  expect_ok(cudaGetDeviceProperties(&properties, 0));
  BOOST_TEST(std::string(properties.name) == "emulated device");
  int value = 0;
  expect_ok(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
  BOOST_TEST(value == properties.major);
  expect(cudaErrorNotSupported, cudaDeviceGetAttribute(&value, cudaDevAttrTextureAlignment, 0));
  const char* name = nullptr;
  simt::register_kernel(nothing, "nothing");
  expect_ok(cudaFuncGetName(&name, reinterpret_cast<const void*>(&nothing)));
  BOOST_TEST(std::strlen(name) > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
