// The rules of stream capture, one by one: the code that breaking each gives, and what becomes of
// the capture. docs/emulated_device.md says where each is documented.
#include <functional>
#include <thread>

#include "tests/simt/device.h"

namespace reprise::test {
namespace {

__global__ void nothing(int) {}

cudaError_t work(cudaStream_t stream) { return launch(nothing, {1, 1, 0, stream}, 0); }

struct CaptureFixture : CleanDevice {
  TestStream stream;
  TestStream other;
  TestEvent event;

  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    expect_ok(cudaStreamBeginCapture(stream, mode));
  }
  // The code with which the capture ends, without a graph unless it is a success.
  void end(cudaError_t expected) {
    cudaGraph_t graph = nullptr;
    expect(expected, cudaStreamEndCapture(stream, &graph));
    BOOST_TEST((graph != nullptr) == (expected == cudaSuccess));
    if (graph != nullptr) expect_ok(cudaGraphDestroy(graph));
    cudaStreamCaptureStatus status{};
    expect_ok(cudaStreamIsCapturing(stream, &status));
    BOOST_TEST(status == cudaStreamCaptureStatusNone);
  }
  // A call that a capture forbids breaks it: what follows says so until it ends.
  void breaks(cudaError_t expected, const std::function<cudaError_t()>& call,
              cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    begin(mode);
    expect(expected, call());
    cudaStreamCaptureStatus status{};
    expect_ok(cudaStreamIsCapturing(stream, &status));
    BOOST_TEST(status == cudaStreamCaptureStatusInvalidated);
    expect(cudaErrorStreamCaptureInvalidated, work(stream));
    end(cudaErrorStreamCaptureInvalidated);
  }
  void allows(const std::function<cudaError_t()>& call, cudaStreamCaptureMode mode) {
    begin(mode);
    expect_ok(call());
    end(cudaSuccess);
  }
};

cudaError_t on_another_thread(const std::function<cudaError_t()>& call) {
  cudaError_t status = cudaSuccess;
  std::thread([&] { status = call(); }).join();
  return status;
}

cudaError_t allocate_and_free() {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, 16);
  return status == cudaSuccess ? cudaFree(memory) : status;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(capture, CaptureFixture)

BOOST_AUTO_TEST_CASE(captured_work_does_not_run) {
  const DeviceArray<int> array(std::vector<int>{1});
  begin();
  expect_ok(cudaMemsetAsync(array.data(), 0, 4, stream));
  cudaStreamCaptureStatus status{};
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* dependencies = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  expect_ok(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count));
  BOOST_TEST(status == cudaStreamCaptureStatusActive);
  BOOST_TEST(id != 0u);
  BOOST_TEST(count == 1u);
  cudaGraphNodeType type{};
  expect_ok(cudaGraphNodeGetType(dependencies[0], &type));
  BOOST_TEST(type == cudaGraphNodeTypeMemset);
  end(cudaSuccess);
  BOOST_TEST(array.read()[0] == 1);
}

BOOST_AUTO_TEST_CASE(unsafe_calls) {
  void* memory = nullptr;
  expect_ok(cudaMalloc(&memory, 16));
  cudaGraph_t graph = nullptr;
  begin();
  expect_ok(work(stream));
  expect_ok(cudaStreamEndCapture(stream, &graph));
  int host = 0;
  cudaGraphExec_t executable = nullptr;
  const auto unsupported = cudaErrorStreamCaptureUnsupported;
  breaks(unsupported, allocate_and_free);
  expect_detail("cudaMalloc while a stream is captured");
  breaks(unsupported, [&] { return cudaFree(memory); });
  breaks(unsupported, [&] { return cudaMallocHost(&memory, 16); });
  breaks(unsupported, [&] { return cudaFreeHost(nullptr); });
  breaks(unsupported, [&] { return cudaMemcpy(memory, &host, 4, cudaMemcpyHostToDevice); });
  breaks(unsupported, [&] { return cudaGraphInstantiate(&executable, graph, 0); });
  breaks(unsupported, [&] { return cudaEventQuery(event); });
  breaks(unsupported, [&] { return cudaStreamSynchronize(other); });
  expect_ok(cudaGraphDestroy(graph));
  expect_ok(cudaFree(memory));
}

BOOST_AUTO_TEST_CASE(modes_say_which_threads_must_be_careful) {
  const auto call = [] { return on_another_thread(allocate_and_free); };
  breaks(cudaErrorStreamCaptureUnsupported, call);
  allows(call, cudaStreamCaptureModeThreadLocal);
  allows(call, cudaStreamCaptureModeRelaxed);
  breaks(cudaErrorStreamCaptureUnsupported, allocate_and_free, cudaStreamCaptureModeThreadLocal);
  allows(allocate_and_free, cudaStreamCaptureModeRelaxed);
  const auto relaxed = [] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    expect_ok(cudaThreadExchangeStreamCaptureMode(&mode));
    const cudaError_t status = allocate_and_free();
    expect_ok(cudaThreadExchangeStreamCaptureMode(&mode));
    BOOST_TEST(mode == cudaStreamCaptureModeRelaxed);
    return status;
  };
  allows(relaxed, cudaStreamCaptureModeGlobal);
}

BOOST_AUTO_TEST_CASE(no_synchronisation_in_any_mode) {
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    const auto unsupported = cudaErrorStreamCaptureUnsupported;
    breaks(
        unsupported, [&] { return cudaStreamSynchronize(stream); }, mode);
    breaks(
        unsupported, [&] { return cudaStreamQuery(stream); }, mode);
    breaks(
        unsupported, [] { return cudaDeviceSynchronize(); }, mode);
    breaks(
        cudaErrorCapturedEvent,
        [&] {
          expect_ok(cudaEventRecord(event, stream));
          return cudaEventSynchronize(event);
        },
        mode);
    breaks(
        cudaErrorCapturedEvent,
        [&] {
          expect_ok(cudaEventRecord(event, stream));
          return cudaEventQuery(event);
        },
        mode);
  }
}

BOOST_AUTO_TEST_CASE(no_pageable_memory) {
  const DeviceArray<int> array(1);
  int host = 0;
  breaks(cudaErrorStreamCaptureUnsupported,
         [&] { return cudaMemcpyAsync(&host, array.data(), 4, cudaMemcpyDeviceToHost, stream); });
  breaks(cudaErrorStreamCaptureUnsupported,
         [&] { return cudaMemcpyAsync(array.data(), &host, 4, cudaMemcpyHostToDevice, stream); });
}

BOOST_AUTO_TEST_CASE(forks_are_joined) {
  const auto fork = [&] {
    expect_ok(work(stream));
    expect_ok(cudaEventRecord(event, stream));
    expect_ok(cudaStreamWaitEvent(other, event, 0));
    expect_ok(work(other));
  };
  begin();
  fork();
  end(cudaErrorStreamCaptureUnjoined);
  begin();
  fork();
  expect_ok(cudaEventRecord(event, other));
  expect_ok(cudaStreamWaitEvent(stream, event, 0));
  end(cudaSuccess);
  // Joined too early: the work after it hangs loose.
  begin();
  fork();
  expect_ok(cudaEventRecord(event, other));
  expect_ok(cudaStreamWaitEvent(stream, event, 0));
  expect_ok(work(other));
  end(cudaErrorStreamCaptureUnjoined);
  expect_ok(work(other));  // which is free again
  expect_ok(cudaStreamSynchronize(other));
}

BOOST_AUTO_TEST_CASE(captures_stay_apart) {
  expect_ok(work(other));
  expect_ok(cudaEventRecord(event, other));
  breaks(cudaErrorStreamCaptureIsolation, [&] { return cudaStreamWaitEvent(stream, event, 0); });

  expect_ok(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
  expect_ok(cudaEventRecord(event, other));
  breaks(cudaErrorStreamCaptureMerge, [&] { return cudaStreamWaitEvent(stream, event, 0); });
  cudaGraph_t graph = nullptr;
  expect(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(other, &graph));

  begin();
  expect_ok(cudaEventRecord(event, stream));
  end(cudaSuccess);
  expect(cudaErrorCapturedEvent, cudaStreamWaitEvent(other, event, 0));
}

BOOST_AUTO_TEST_CASE(captures_end_where_they_began) {
  begin();
  expect_ok(cudaEventRecord(event, stream));
  expect_ok(cudaStreamWaitEvent(other, event, 0));
  cudaGraph_t graph = nullptr;
  expect(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(other, &graph));
  end(cudaErrorStreamCaptureInvalidated);

  const auto end_elsewhere = [&] {
    return on_another_thread([&] { return cudaStreamEndCapture(stream, &graph); });
  };
  begin(cudaStreamCaptureModeThreadLocal);
  expect(cudaErrorStreamCaptureWrongThread, end_elsewhere());
  end(cudaErrorStreamCaptureInvalidated);
  begin(cudaStreamCaptureModeRelaxed);
  expect_ok(end_elsewhere());
  expect_ok(cudaGraphDestroy(graph));

  expect(cudaErrorIllegalState, cudaStreamEndCapture(stream, &graph));
  begin();
  expect(cudaErrorIllegalState, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  end(cudaSuccess);
}

BOOST_AUTO_TEST_CASE(the_legacy_stream_stays_out) {
  expect(cudaErrorStreamCaptureUnsupported,
         cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed));
  const TestStream blocking(cudaStreamDefault);
  cudaGraph_t graph = nullptr;
  expect_ok(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  expect(cudaErrorStreamCaptureImplicit, work(nullptr));
  expect(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(blocking, &graph));
  // A non-blocking stream has nothing to do with it.
  begin();
  expect_ok(work(nullptr));
  end(cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
