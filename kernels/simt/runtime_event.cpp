// Events: marks in a stream, and in a capture the ends of its branches.
#include <algorithm>
#include <chrono>
#include <map>

#include "kernels/simt/runtime_stream.h"

namespace reprise::simt {
namespace {

std::map<cudaEvent_t, std::unique_ptr<CUevent_st>>& events() {
  static std::map<cudaEvent_t, std::unique_ptr<CUevent_st>> all;
  return all;
}

cudaError_t create(cudaEvent_t* out, unsigned flags) {
  if ((flags & ~(cudaEventDisableTiming | cudaEventBlockingSync)) != 0) {
    return refuse(cudaErrorNotSupported, "events between processes");
  }
  auto event = std::make_unique<CUevent_st>();
  event->timed = (flags & cudaEventDisableTiming) == 0;
  *out = event.get();
  events()[event.get()] = std::move(event);
  return cudaSuccess;
}

CUevent_st* find(cudaEvent_t handle) {
  const auto found = events().find(handle);
  if (found != events().end()) return found->second.get();
  refuse(cudaErrorInvalidResourceHandle, "an event that was destroyed or never made");
  return nullptr;
}

cudaError_t record(CUevent_st& event, cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    if (!stream->capture->valid) {
      return refuse(cudaErrorStreamCaptureInvalidated, "cudaEventRecord");
    }
    event.stream.reset();
    event.capture = stream->capture;
    event.frontier = stream->frontier;
    return cudaSuccess;
  }
  event.capture.reset();
  event.frontier.clear();
  event.milliseconds = std::make_shared<double>(0.0);
  const auto note_time = [time = event.milliseconds] {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    *time = Milliseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    return cudaSuccess;
  };
  const cudaError_t status = enqueue(stream, note_time);
  event.stream = stream;
  event.sequence = stream->enqueued;
  return status;
}

cudaError_t refuse_captured_event(const CUevent_st& event, const std::string& call) {
  if (!event.capture) return cudaSuccess;
  return invalidate(*event.capture, cudaErrorCapturedEvent,
                    call + " of an event that was recorded in a capture");
}

cudaError_t wait(cudaStream_t handle, const CUevent_st& event) {
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (event.capture) return join_capture(*stream, event);
  if (!event.stream) return cudaSuccess;  // never recorded: nothing to wait for
  if (stream->capture) {
    return invalidate(
        *stream->capture, cudaErrorStreamCaptureIsolation,
        "a captured stream waits for an event that was recorded outside of a capture");
  }
  return enqueue(stream, nullptr, {{event.stream, event.sequence}});
}

}  // namespace
}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return entry([&] { return create(event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return entry([&] { return create(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return entry([&] {
    if (find(handle) == nullptr) return cudaErrorInvalidResourceHandle;
    events().erase(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return entry([&] {
    CUevent_st* const event = find(handle);
    return event == nullptr ? cudaErrorInvalidResourceHandle : record(*event, stream);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned flags) {
  return entry([&] {
    const CUevent_st* const event = find(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return refuse(cudaErrorNotSupported, "external event waits");
    return wait(stream, *event);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return entry([&] {
    const CUevent_st* const event = find(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    cudaError_t status = refuse_captured_event(*event, "cudaEventSynchronize");
    if (status == cudaSuccess) status = refuse_in_capture("cudaEventSynchronize");
    if (status != cudaSuccess || !event->stream) return status;
    return drain(*event->stream, event->sequence);
  });
}

// Asking lets one operation run, so that a loop that asks comes to an end.
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return entry([&] {
    const CUevent_st* const event = find(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    cudaError_t status = refuse_captured_event(*event, "cudaEventQuery");
    if (status == cudaSuccess) status = refuse_in_capture("cudaEventQuery");
    if (status != cudaSuccess || !event->stream) return status;
    CUstream_st& stream = *event->stream;
    status = drain(stream, std::min(stream.done + 1, event->sequence));
    if (status != cudaSuccess) return status;
    return stream.done >= event->sequence ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return entry([&] {
    const CUevent_st* const first = find(from);
    const CUevent_st* const second = find(to);
    if (first == nullptr || second == nullptr) return cudaErrorInvalidResourceHandle;
    if (!first->timed || !second->timed || !first->stream || !second->stream) {
      return refuse(cudaErrorInvalidResourceHandle, "an event without a time");
    }
    if (first->stream->done < first->sequence || second->stream->done < second->sequence) {
      return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>(*second->milliseconds - *first->milliseconds);
    return cudaSuccess;
  });
}
}
