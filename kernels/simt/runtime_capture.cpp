// Stream capture and its rules; docs/emulated_device.md lists them and says where each comes from.
#include <algorithm>
#include <map>

#include "kernels/simt/block_runner.h"
#include "kernels/simt/runtime_stream.h"

namespace reprise::simt {
namespace {

std::set<std::shared_ptr<Capture>>& captures() {
  static std::set<std::shared_ptr<Capture>> active;
  return active;
}
std::uint64_t capture_count = 0;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// Whether a potentially unsafe call of this thread endangers the capture.
bool forbids(const Capture& capture) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) {
    return capture.mode != cudaStreamCaptureModeRelaxed;
  }
  return thread_mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

void merge_into(std::vector<CUgraphNode_st*>& frontier, const std::vector<CUgraphNode_st*>& more) {
  for (CUgraphNode_st* node : more) {
    if (std::find(frontier.begin(), frontier.end(), node) == frontier.end()) {
      frontier.push_back(node);
    }
  }
}

// Captured work from which no path leads to where the capture ends.
bool has_unjoined_work(const CUgraph_st& graph, const std::vector<CUgraphNode_st*>& frontier) {
  std::set<const CUgraphNode_st*> reached;
  std::vector<const CUgraphNode_st*> open(frontier.begin(), frontier.end());
  while (!open.empty()) {
    const CUgraphNode_st* const node = open.back();
    open.pop_back();
    if (reached.insert(node).second)
      open.insert(open.end(), node->after.begin(), node->after.end());
  }
  return reached.size() != graph.nodes.size();
}

cudaError_t begin(CUstream_st& stream, cudaStreamCaptureMode mode) {
  if (&stream == find_stream(nullptr).get()) {
    return refuse(cudaErrorStreamCaptureUnsupported, "the legacy stream cannot be captured");
  }
  if (stream.capture) return refuse(cudaErrorIllegalState, "the stream is captured already");
  const auto capture = std::make_shared<Capture>();
  capture->id = ++capture_count;
  capture->graph = std::make_unique<CUgraph_st>();
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->members = {&stream};
  stream.capture = capture;
  stream.frontier.clear();
  captures().insert(capture);
  return cudaSuccess;
}

cudaError_t end(CUstream_st& stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto capture = stream.capture;
  if (!capture) return refuse(cudaErrorIllegalState, "the stream is not captured");
  if (capture->origin != &stream) {
    return invalidate(*capture, cudaErrorStreamCaptureUnmatched,
                      "cudaStreamEndCapture on another stream than the one where it began");
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return invalidate(*capture, cudaErrorStreamCaptureWrongThread,
                      "cudaStreamEndCapture on another thread than the one where it began");
  }
  const bool unjoined = has_unjoined_work(*capture->graph, stream.frontier);
  for (CUstream_st* member : capture->members) {
    member->capture.reset();
    member->frontier.clear();
  }
  capture->active = false;
  captures().erase(capture);
  if (!capture->valid) {
    // The detail stays that of the call that broke it.
    return refuse(cudaErrorStreamCaptureInvalidated, device_state().detail);
  }
  if (unjoined) {
    return refuse(cudaErrorStreamCaptureUnjoined, "a forked stream was not joined again");
  }
  *graph = capture->graph.release();
  return cudaSuccess;
}

}  // namespace

cudaError_t invalidate(Capture& capture, cudaError_t status, const std::string& why) {
  capture.valid = false;
  return refuse(status, why);
}

cudaError_t refuse_in_capture(const std::string& call) {
  bool forbidden = false;
  for (const auto& capture : captures()) {
    if (!forbids(*capture)) continue;
    capture->valid = false;
    forbidden = true;
  }
  if (!forbidden) return cudaSuccess;
  return refuse(cudaErrorStreamCaptureUnsupported, call + " while a stream is captured");
}

cudaError_t refuse_while_any_capture(const std::string& call) {
  if (captures().empty()) return cudaSuccess;
  for (const auto& capture : captures()) capture->valid = false;
  return refuse(cudaErrorStreamCaptureUnsupported, call + " while a stream is captured");
}

cudaError_t refuse_legacy_use(const std::string& what) {
  for (const auto& capture : captures()) {
    const auto& members = capture->members;
    if (std::any_of(members.begin(), members.end(),
                    [](auto* member) { return member->blocking; })) {
      return invalidate(*capture, cudaErrorStreamCaptureImplicit,
                        what + " while a blocking stream is captured");
    }
  }
  return cudaSuccess;
}

cudaError_t capture_work(CUstream_st& stream, Work work) {
  Capture& capture = *stream.capture;
  if (!capture.valid) {
    return refuse(cudaErrorStreamCaptureInvalidated, device_state().detail);
  }
  auto node = std::make_unique<CUgraphNode_st>();
  node->work = std::move(work);
  node->after = stream.frontier;
  stream.frontier = {node.get()};
  capture.graph->nodes.push_back(std::move(node));
  return cudaSuccess;
}

cudaError_t join_capture(CUstream_st& stream, const CUevent_st& event) {
  Capture& capture = *event.capture;
  if (stream.capture && stream.capture != event.capture) {
    capture.valid = false;
    return invalidate(
        *stream.capture,
        capture.active ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation,
        "a captured stream waits for an event of another capture");
  }
  if (!capture.active) {
    return refuse(cudaErrorCapturedEvent, "a wait for an event of a capture that has ended");
  }
  if (!capture.valid) return refuse(cudaErrorStreamCaptureInvalidated, device_state().detail);
  if (&stream == find_stream(nullptr).get()) {
    return invalidate(capture, cudaErrorStreamCaptureImplicit,
                      "the legacy stream waits for an event of a capture");
  }
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.frontier.clear();
    capture.members.insert(&stream);
  }
  merge_into(stream.frontier, event.frontier);
  return cudaSuccess;
}

void reset_captures() {
  for (const auto& capture : captures()) capture->active = false;
  captures().clear();
}

void reset_device() {
  DeviceState& state = device_state();
  const std::lock_guard lock(state.mutex);
  state.sticky = cudaSuccess;
  state.detail.clear();
  reset_streams();
  reset_captures();
}

}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return entry([&] {
    const auto stream = find_stream(handle);
    return stream ? begin(*stream, mode) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return entry([&] {
    const auto stream = find_stream(handle);
    return stream ? end(*stream, graph) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  return entry([&] {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *status = cudaStreamCaptureStatusNone;
    if (!stream->capture) return cudaSuccess;
    const Capture& capture = *stream->capture;
    *status = capture.valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
    if (!capture.valid) return cudaSuccess;
    if (id != nullptr) *id = capture.id;
    if (graph != nullptr) *graph = capture.graph.get();
    if (dependencies != nullptr) *dependencies = stream->frontier.data();
    if (edges != nullptr) *edges = nullptr;  // all edges are plain
    if (count != nullptr) *count = stream->frontier.size();
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return entry([&] {
    std::swap(thread_mode, *mode);
    return cudaSuccess;
  });
}
}
