// Kernels with a fault each: the launch fails, says what is wrong, and the process goes on.
#include "kernels/simt/runtime.h"
#include "tests/simt/device.h"

namespace reprise::test {
namespace {

__global__ void divergent_barrier(int) {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void leave_before_barrier(int) {
  if (threadIdx.x == 40) return;
  __syncthreads();
}

__global__ void leave_first(int) {
  if (threadIdx.x == 0) return;
  __syncthreads();
}

// The first warp waits for lane 1 in the warp, lane 1 for everybody at the barrier.
__global__ void barrier_in_warp_work(int) {
  if (threadIdx.x != 1) __syncwarp();
  __syncthreads();
}

__global__ void wait_for_each_other(int) {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncwarp(0x3u);
  }
}

__global__ void lane_not_in_mask(int) { __shfl_sync(0x0000ffffu, 1, 0); }

__global__ void lane_gone(int) {
  if (threadIdx.x == 0) return;
  __ballot_sync(0xffffffffu, 1);
}

__global__ void lane_leaves(int) {
  if (threadIdx.x == 30) return;
  __ballot_sync(0xffffffffu, 1);
}

__global__ void read_outside_mask(int) {
  if (threadIdx.x < 16) __shfl_sync(0x0000ffffu, 1, 20);
}

__global__ void divergent_warp(int) {
  if (threadIdx.x < 8) {
    __shfl_xor_sync(~0u, 1, 1);
  } else {
    __any_sync(~0u, 1);
  }
}

__global__ void odd_width(int) { __shfl_sync(~0u, 1, 0, 5); }

__global__ void no_dynamic_memory(int) {
  REPRISE_DYNAMIC_SHARED(int, values);
  values[0] = 1;
}

struct Large {
  char bytes[50000];
};
__global__ void too_much_shared(int) {
  REPRISE_SHARED(Large, large);
  large.bytes[0] = 1;
}

__global__ void throws(int) { throw 1; }

__global__ void dereference(int* address) { *address = 1; }

int deep(int depth) {
  volatile char frame[4096] = {};
  return depth == 0 ? frame[0] : deep(depth - 1) + frame[depth % 4096];
}
__global__ void endless_stack(int* out) { *out = deep(1000); }

// The launch is refused when it runs, its text says `part`, and the failure stays until a reset.
void expect_failure(void (*kernel)(int), unsigned threads, const std::string& part) {
  simt::reset_device();
  expect_ok(launch(kernel, {2, threads}, 0));
  expect(cudaErrorLaunchFailure, cudaDeviceSynchronize());
  expect_detail(part);
  expect_detail("misuse_test.cpp:");
  expect_detail("kernel kernel_of_the_test, block (0,0,0), thread (");
  BOOST_TEST(std::string(cudaGetErrorString(cudaErrorLaunchFailure)).find(part) !=
             std::string::npos);
  void* memory = nullptr;
  expect(cudaErrorLaunchFailure, cudaMalloc(&memory, 16));
  expect(cudaErrorLaunchFailure, cudaGetLastError());
  expect(cudaErrorLaunchFailure, cudaGetLastError());
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(misuse, CleanDevice)

BOOST_AUTO_TEST_CASE(barriers) {
  expect_failure(divergent_barrier, 64, "divergent barrier: 16 threads wait at");
  expect_failure(leave_before_barrier, 64,
                 "this thread left the kernel while 40 threads wait at this barrier");
  expect_failure(leave_first, 64, "a barrier after 1 threads have left the kernel");
  expect_failure(barrier_in_warp_work, 64,
                 "a barrier, but the warp waits for this lane in __syncwarp at");
  expect_failure(wait_for_each_other, 2, "deadlock: 0 of 2 threads have left the kernel, ");
  expect_detail("1 wait at the barrier ");
  expect_detail("1 wait in __syncwarp ");
}

BOOST_AUTO_TEST_CASE(warps) {
  expect_failure(lane_not_in_mask, 32, "__shfl_sync: lane 16 is not in its own mask 0x0000ffff");
  expect_failure(lane_gone, 32, "a vote: the mask 0xffffffff names lane 0, which has left");
  expect_failure(lane_leaves, 32, "lane 30 left the kernel while its warp waits for it in a vote");
  expect_failure(read_outside_mask, 32,
                 "__shfl_sync: lane 0 reads lane 20, which is not in the mask 0x0000ffff");
  expect_failure(divergent_warp, 32,
                 "divergent warp: a vote with mask 0xffffffff, but lanes of it wait in "
                 "__shfl_xor_sync with mask 0xffffffff at");
  expect_failure(odd_width, 32, "the width 5 is no power of two up to 32");
}

BOOST_AUTO_TEST_CASE(shared_memory) {
  expect_failure(no_dynamic_memory, 1, "dynamic shared memory, but the launch asked for none");
  expect_failure(too_much_shared, 1, "50000 bytes of variables and 0 dynamic ones, is more than");
}

BOOST_AUTO_TEST_CASE(an_exception_is_a_failed_launch) {
  expect_ok(launch(throws, {1, 1}, 0));
  expect(cudaErrorLaunchFailure, cudaDeviceSynchronize());
  expect_detail("an exception left the kernel");
}

// AddressSanitizer ends the process at these, with a report of its own.
BOOST_AUTO_TEST_CASE(invalid_addresses, *boost::unit_test::precondition([](auto) {
                       return !simt::under_address_sanitizer();
                     })) {
  expect_ok(launch(dereference, {1, 1}, static_cast<int*>(nullptr)));
  expect(cudaErrorLaunchFailure, cudaDeviceSynchronize());
  expect_detail("illegal access of memory that is no allocation");
  simt::reset_device();
  const DeviceArray<int> array(64);
  expect_ok(launch(dereference, {1, 1}, array.data() + 64));
  expect(cudaErrorLaunchFailure, cudaDeviceSynchronize());
  expect_detail("illegal access of byte 256 of allocation");
  simt::reset_device();
  expect_ok(launch(endless_stack, {1, 1}, array.data()));
  expect(cudaErrorLaunchFailure, cudaDeviceSynchronize());
  expect_detail("stack has run over");
  // The device is as good as new after it.
  simt::reset_device();
  expect_ok(launch(dereference, {1, 1}, array.data()));
  BOOST_TEST(array.read()[0] == 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
