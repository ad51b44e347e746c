// Streams: lazy queues, and the order between them.
#include "kernels/simt/runtime_stream.h"

#include <algorithm>
#include <map>

#include "kernels/simt/settings.h"

namespace reprise::simt {
namespace {

std::shared_ptr<CUstream_st> legacy() {
  static const auto stream = std::make_shared<CUstream_st>();
  return stream;
}

std::map<cudaStream_t, std::shared_ptr<CUstream_st>>& streams() {
  static std::map<cudaStream_t, std::shared_ptr<CUstream_st>> all;
  return all;
}

// What the legacy stream does comes after all work of blocking streams, and they wait for it.
void wait_as_legacy(const std::shared_ptr<CUstream_st>& stream, std::vector<Wait>& waits) {
  if (stream == legacy()) {
    for (const auto& [handle, other] : streams()) {
      if (other->blocking) waits.push_back({other, other->enqueued});
    }
  } else if (stream->blocking) {
    waits.push_back({legacy(), legacy()->enqueued});
  }
}

cudaError_t create(cudaStream_t* out, unsigned flags) {
  if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) {
    return refuse(cudaErrorInvalidValue, "unknown flags of a stream");
  }
  auto stream = std::make_shared<CUstream_st>();
  stream->blocking = flags == cudaStreamDefault;
  *out = stream.get();
  streams()[stream.get()] = stream;
  return cudaSuccess;
}

cudaError_t refuse_captured_stream(CUstream_st& stream, const std::string& call) {
  if (!stream.capture) return cudaSuccess;
  return invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported,
                    call + " of a stream that is captured");
}

// What must hold before a stream is waited for or asked how far it is.
cudaError_t check_before_wait(CUstream_st& stream, const std::string& call) {
  if (&stream == legacy().get()) {
    if (const cudaError_t status = refuse_legacy_use(call); status != cudaSuccess) return status;
  }
  if (const cudaError_t status = refuse_captured_stream(stream, call); status != cudaSuccess) {
    return status;
  }
  return refuse_in_capture(call);
}

}  // namespace

std::shared_ptr<CUstream_st> find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy();
  const auto found = streams().find(handle);
  if (found != streams().end()) return found->second;
  refuse(cudaErrorInvalidResourceHandle,
         "a stream that was destroyed, never made, or is per thread");
  return nullptr;
}

cudaError_t drain(CUstream_st& stream, std::uint64_t upto) {
  while (stream.done < upto && !stream.queue.empty()) {
    const Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    for (const Wait& wait : operation.waits) {
      const cudaError_t status = drain(*wait.stream, wait.sequence);
      if (status != cudaSuccess) return status;
    }
    ++stream.done;
    const cudaError_t status = operation.run ? operation.run() : cudaSuccess;
    if (status != cudaSuccess) {
      device_state().sticky = status;
      return status;
    }
  }
  return cudaSuccess;
}

cudaError_t drain_all() {
  std::vector<std::shared_ptr<CUstream_st>> all = {legacy()};
  for (const auto& [handle, stream] : streams()) all.push_back(stream);
  // Independent streams may finish in any order.
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random_below(i)]);
  for (const auto& stream : all) {
    const cudaError_t status = drain(*stream, stream->enqueued);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t enqueue(const std::shared_ptr<CUstream_st>& stream, std::function<cudaError_t()> run,
                    std::vector<Wait> waits) {
  wait_as_legacy(stream, waits);
  stream->queue.push_back({std::move(waits), std::move(run)});
  ++stream->enqueued;
  return cudaSuccess;
}

cudaError_t submit(cudaStream_t handle, Work work) {
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream == legacy()) {
    const cudaError_t status = refuse_legacy_use("work on the legacy stream");
    if (status != cudaSuccess) return status;
  }
  if (stream->capture) return capture_work(*stream, std::move(work));
  return enqueue(stream, [work = std::move(work)] { return run_work(work); });
}

void reset_streams() {
  const auto forget = [](CUstream_st& stream) {
    stream.queue.clear();
    stream.done = stream.enqueued;
    stream.capture.reset();
    stream.frontier.clear();
  };
  forget(*legacy());
  for (const auto& [handle, stream] : streams()) forget(*stream);
}

}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return entry([&] { return create(stream, cudaStreamDefault); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return entry([&] { return create(stream, flags); });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return entry([&] {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream == legacy()) return refuse(cudaErrorInvalidValue, "the legacy stream stays");
    if (stream->capture) {
      return refuse_captured_stream(*stream, "cudaStreamDestroy");
    }
    const cudaError_t status = drain(*stream, stream->enqueued);
    streams().erase(handle);
    return status;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return entry([&] {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const cudaError_t status = check_before_wait(*stream, "cudaStreamSynchronize");
    return status == cudaSuccess ? drain(*stream, stream->enqueued) : status;
  });
}

// Asking lets one operation run, so that a loop that asks comes to an end.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return entry([&] {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    cudaError_t status = check_before_wait(*stream, "cudaStreamQuery");
    if (status == cudaSuccess) status = drain(*stream, stream->done + 1);
    if (status != cudaSuccess) return status;
    return stream->done == stream->enqueued ? cudaSuccess : cudaErrorNotReady;
  });
}
}
