// Lazy streams and events: what is not waited for has not happened, and what is has.
#include "tests/simt/device.h"

namespace reprise::test {
namespace {

__global__ void add(int* value, int amount) { *value += amount; }
__global__ void times_ten(int* value) { *value *= 10; }

// One pinned int of the host.
class Pinned {
 public:
  explicit Pinned(int value) {
    BOOST_REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&data_), sizeof(int)) == cudaSuccess);
    *data_ = value;
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  int* data() const { return data_; }
  int& operator*() const { return *data_; }

 private:
  int* data_ = nullptr;
};

cudaError_t copy_in(int* to, const int* from, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, sizeof(int), cudaMemcpyHostToDevice, stream);
}
cudaError_t copy_out(int* to, const int* from, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, sizeof(int), cudaMemcpyDeviceToHost, stream);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(streams, CleanDevice)

BOOST_AUTO_TEST_CASE(pinned_memory_moves_when_the_stream_runs) {
  const TestStream stream;
  const DeviceArray<int> device(std::vector<int>{1});
  const Pinned in(2);
  const Pinned out(-1);
  expect_ok(copy_in(device.data(), in.data(), stream));
  *in = 3;  // too early, and seen
  expect_ok(copy_out(out.data(), device.data(), stream));
  BOOST_TEST(*out == -1);  // read before the synchronisation: stale
  expect_ok(cudaStreamSynchronize(stream));
  BOOST_TEST(*out == 3);
}

BOOST_AUTO_TEST_CASE(pageable_memory_moves_with_the_call) {
  const TestStream stream;
  const DeviceArray<int> device(std::vector<int>{1});
  int host = 2;
  expect_ok(copy_in(device.data(), &host, stream));
  host = 3;
  int out = -1;
  expect_ok(copy_out(&out, device.data(), stream));
  BOOST_TEST(out == 2);
}

BOOST_AUTO_TEST_CASE(events_order_streams) {
  const TestStream first;
  const TestStream second;
  const TestEvent event;
  const Pinned out(-1);
  const DeviceArray<int> device(std::vector<int>{1});
  // Without an event the second stream overtakes.
  expect_ok(launch(add, {1, 1, 0, first}, device.data(), 2));
  expect_ok(launch(times_ten, {1, 1, 0, second}, device.data()));
  expect_ok(cudaStreamSynchronize(second));
  expect_ok(cudaStreamSynchronize(first));
  BOOST_TEST(device.read()[0] == 12);
  // With it, waiting for the second runs the first as far as the event.
  expect_ok(launch(add, {1, 1, 0, first}, device.data(), 8));
  expect_ok(cudaEventRecord(event, first));
  expect_ok(launch(add, {1, 1, 0, first}, device.data(), 1000));
  expect_ok(cudaStreamWaitEvent(second, event, 0));
  expect_ok(launch(times_ten, {1, 1, 0, second}, device.data()));
  expect_ok(copy_out(out.data(), device.data(), second));
  expect_ok(cudaStreamSynchronize(second));
  BOOST_TEST(*out == 200);
  expect_ok(cudaDeviceSynchronize());
  BOOST_TEST(device.read()[0] == 1200);
}

BOOST_AUTO_TEST_CASE(asking_an_event_makes_progress) {
  const TestStream stream;
  const TestEvent event;
  const DeviceArray<int> device(std::vector<int>{1});
  expect_ok(cudaEventQuery(event));  // never recorded
  expect_ok(launch(add, {1, 1, 0, stream}, device.data(), 2));
  expect_ok(launch(add, {1, 1, 0, stream}, device.data(), 3));
  expect_ok(cudaEventRecord(event, stream));
  expect(cudaErrorNotReady, cudaEventQuery(event));
  expect(cudaErrorNotReady, cudaStreamQuery(stream));
  expect_ok(cudaEventQuery(event));
  expect_ok(cudaGetLastError());  // not being ready is no error
  BOOST_TEST(device.read()[0] == 6);
}

BOOST_AUTO_TEST_CASE(timed_events_measure) {
  const TestStream stream;
  cudaEvent_t from = nullptr;
  cudaEvent_t to = nullptr;
  expect_ok(cudaEventCreate(&from));
  expect_ok(cudaEventCreate(&to));
  expect_ok(cudaEventRecord(from, stream));
  expect_ok(cudaEventRecord(to, stream));
  float milliseconds = -1;
  expect(cudaErrorNotReady, cudaEventElapsedTime(&milliseconds, from, to));
  expect_ok(cudaEventSynchronize(to));
  expect_ok(cudaEventElapsedTime(&milliseconds, from, to));
  BOOST_TEST(milliseconds >= 0.0f);
  const TestEvent untimed;
  expect(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, from, untimed));
  expect_ok(cudaEventDestroy(from));
  expect_ok(cudaEventDestroy(to));
}

BOOST_AUTO_TEST_CASE(the_legacy_stream_waits_for_blocking_streams_alone) {
  const TestStream blocking(cudaStreamDefault);
  const TestStream apart;
  const DeviceArray<int> one(std::vector<int>{1});
  const DeviceArray<int> two(std::vector<int>{1});
  expect_ok(launch(add, {1, 1, 0, blocking}, one.data(), 2));
  expect_ok(launch(add, {1, 1, 0, apart}, two.data(), 2));
  BOOST_TEST(one.read()[0] == 3);
  BOOST_TEST(two.read()[0] == 1);
  expect_ok(launch(add, {1, 1}, one.data(), 4));
  const Pinned out(-1);
  expect_ok(copy_out(out.data(), one.data(), blocking));
  expect_ok(cudaStreamSynchronize(blocking));
  BOOST_TEST(*out == 7);
}

BOOST_AUTO_TEST_CASE(stale_handles_are_refused) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  expect_ok(cudaStreamCreate(&stream));
  expect_ok(cudaStreamDestroy(stream));
  expect_ok(cudaEventCreate(&event));
  expect_ok(cudaEventDestroy(event));
  expect(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(stream));
  expect(cudaErrorInvalidResourceHandle, cudaEventSynchronize(event));
  expect(cudaErrorInvalidResourceHandle, launch(times_ten, {1, 1, 0, stream}, nullptr));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
