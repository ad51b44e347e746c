// Kernels that are in order: indices, shared memory, barriers, collectives, arguments, schedules.
#include <algorithm>
#include <numeric>

#include "tests/simt/device.h"

namespace reprise::test {
namespace {

__global__ void write_indices(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] += 1 + block * threads + thread;
}

template <int kCount>
__global__ void reverse_in_blocks(float* values) {
  REPRISE_SHARED(float[kCount], tile);
  REPRISE_DYNAMIC_SHARED(float, copy);
  const unsigned i = threadIdx.x;
  float* const mine = values + blockIdx.x * kCount;
  tile[i] = mine[i];
  __syncthreads();
  copy[i] = tile[kCount - 1 - i];
  __syncthreads();
  mine[i] = copy[i];
}

__global__ void exchange(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* const mine = out + 8 * lane;
  mine[0] = __shfl_sync(~0u, lane, 5);
  mine[1] = __shfl_sync(~0u, lane, lane + 1, 8);
  mine[2] = __shfl_up_sync(~0u, lane, 3);
  mine[3] = __shfl_down_sync(~0u, lane, 2, 16);
  mine[4] = __shfl_xor_sync(~0u, lane, 9);
  mine[5] = static_cast<int>(__ballot_sync(~0u, lane % 3 == 0));
  mine[6] = __any_sync(~0u, lane == 31) + 2 * __all_sync(~0u, lane < 31);
  mine[7] = __syncthreads_count(lane < 7);
}

__global__ void sum_lanes(double* out, double scale) {
  // Two halves of a warp meet separately.
  const unsigned half = threadIdx.x / 16;
  const unsigned mask = half == 0 ? 0x0000ffffu : 0xffff0000u;
  double sum = scale * threadIdx.x;
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step, 16);
  if (threadIdx.x % 16 == 0) out[half] = sum;
}

__global__ void neighbour_without_barrier(int* out) {
  REPRISE_SHARED(int[64], values);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  // The barrier that belongs here is missing.
  if (threadIdx.x > 0) out[threadIdx.x] = values[threadIdx.x - 1];
}

__global__ void keep_last_block(unsigned* out) { *out = blockIdx.x; }

struct Pair {
  float* to;
  float value;
};
__global__ void by_struct(Pair pair, short offset) { pair.to[offset] = pair.value; }

void set_order(simt::Order order, std::uint64_t seed = 1) {
  simt::settings().order = order;
  simt::seed_random(seed);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(execution, CleanDevice)

BOOST_AUTO_TEST_CASE(every_thread_of_every_block_runs_once) {
  for (const auto order : {simt::Order::kFifo, simt::Order::kReverse, simt::Order::kRandom}) {
    set_order(order);
    const dim3 grid(3, 2, 5);
    const dim3 block(4, 3, 7);
    std::vector<unsigned> expected(3 * 2 * 5 * 4 * 3 * 7);
    const DeviceArray<unsigned> out(std::vector<unsigned>(expected.size(), 0));
    std::iota(expected.begin(), expected.end(), 1);
    expect_ok(launch(write_indices, {grid, block}, out.data()));
    BOOST_TEST(out.read() == expected, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(barriers_order_shared_memory_in_every_schedule) {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    if (seed < 2) {
      set_order(seed == 0 ? simt::Order::kFifo : simt::Order::kReverse);
    } else {
      set_order(simt::Order::kRandom, seed);
    }
    std::vector<float> values(3 * 100);
    std::iota(values.begin(), values.end(), 0.0f);
    const DeviceArray<float> device(values);
    expect_ok(launch(reverse_in_blocks<100>, {3, 100, 100 * sizeof(float)}, device.data()));
    const std::vector<float> result = device.read();
    for (std::size_t i = 0; i < values.size(); ++i) {
      BOOST_TEST(result[i] == values[i / 100 * 100 + 99 - i % 100]);
    }
  }
}

BOOST_AUTO_TEST_CASE(collectives_give_what_cuda_says) {
  const DeviceArray<int> out(32 * 8);
  expect_ok(launch(exchange, {1, 32}, out.data()));
  const std::vector<int> result = out.read();
  for (int lane = 0; lane < 32; ++lane) {
    const int* const mine = result.data() + 8 * lane;
    BOOST_TEST(mine[0] == 5);
    BOOST_TEST(mine[1] == lane / 8 * 8 + (lane + 1) % 8);
    BOOST_TEST(mine[2] == (lane < 3 ? lane : lane - 3));
    BOOST_TEST(mine[3] == (lane % 16 < 14 ? lane + 2 : lane));
    BOOST_TEST(mine[4] == (lane ^ 9));
    BOOST_TEST(mine[5] == 0x49249249);
    BOOST_TEST(mine[6] == 1);
    BOOST_TEST(mine[7] == 7);
  }
}

BOOST_AUTO_TEST_CASE(halves_of_a_warp_meet_apart) {
  const DeviceArray<double> out(2);
  expect_ok(launch(sum_lanes, {1, 32}, out.data(), 0.5));
  BOOST_TEST(out.read() == (std::vector<double>{60.0, 188.0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_reverse_schedule_shows_a_missing_barrier) {
  std::vector<int> expected(64, -1);
  std::iota(expected.begin() + 1, expected.end(), 0);
  const DeviceArray<int> out(std::vector<int>(64, -1));
  set_order(simt::Order::kFifo);  // happens to hide it
  expect_ok(launch(neighbour_without_barrier, {1, 64}, out.data()));
  BOOST_TEST(out.read() == expected, boost::test_tools::per_element());
  set_order(simt::Order::kReverse);
  expect_ok(launch(neighbour_without_barrier, {1, 64}, out.data()));
  // What the neighbour had not written yet is poison, which reads as -1.
  for (const int value : out.read()) BOOST_TEST(value == -1);
}

BOOST_AUTO_TEST_CASE(the_schedule_orders_blocks) {
  const DeviceArray<unsigned> last(1);
  set_order(simt::Order::kFifo);
  expect_ok(launch(keep_last_block, {100, 1}, last.data()));
  BOOST_TEST(last.read()[0] == 99u);
  set_order(simt::Order::kReverse);
  expect_ok(launch(keep_last_block, {100, 1}, last.data()));
  BOOST_TEST(last.read()[0] == 0u);
  std::vector<unsigned> seen;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    set_order(simt::Order::kRandom, seed);
    expect_ok(launch(keep_last_block, {100, 1}, last.data()));
    seen.push_back(last.read()[0]);
  }
  BOOST_TEST(std::count(seen.begin(), seen.end(), seen.front()) < 8);
}

BOOST_AUTO_TEST_CASE(arguments_are_copied_at_the_launch) {
  const TestStream stream;
  const DeviceArray<float> out(std::vector<float>(4, 0.0f));
  Pair pair{out.data(), 7.0f};
  expect_ok(launch(by_struct, {1, 1, 0, stream}, pair, short{2}));
  pair.value = 8.0f;
  expect_ok(cudaStreamSynchronize(stream));
  BOOST_TEST(out.read() == (std::vector<float>{0, 0, 7, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(scalar_intrinsics) {
  BOOST_TEST(__byte_perm(0x33221100u, 0x77665544u, 0x7061u) == 0x77006611u);
  BOOST_TEST(__byte_perm(0x000000ffu, 0, 0x0008u) == 0xffffffffu);
  BOOST_TEST(__funnelshift_r(0x12345678u, 0x9abcdef0u, 8) == 0xf0123456u);
  BOOST_TEST(__brev(1u) == 0x80000000u);
  BOOST_TEST(__clz(0) == 32);
  BOOST_TEST(__ffs(8) == 4);
  BOOST_TEST(__umulhi(0x80000000u, 6u) == 3u);
  BOOST_TEST(__float2int_rn(2.5f) == 2);
  BOOST_TEST(rsqrtf(4.0f) == 0.5f);
  // x * x is 1 + 2^-9 + 2^-20: rounded by itself it would lose the term that is left here.
  const __half x = __float2half(1.0f + 0x1p-10f);
  BOOST_TEST(__half2float(__hfma(x, x, __float2half(-1.0f - 0x1p-9f))) == 0x1p-20f);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
