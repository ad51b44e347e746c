// Capturing what is enqueued on a stream into a CUDA Graph, and replaying it. Rules: CUDA C++
// Programming Guide, "CUDA Graphs", stream capture.
#pragma once

#include <functional>
#include <memory>

#include "reprise/runtime/backend.h"
#include "runtime/cuda/cuda_handle.h"

namespace reprise::cuda {

// Runs `work` with `stream` capturing, in the thread-local mode: unsafe calls of this thread fail
// the capture, those of other threads do not. `stream` must not be the legacy default stream and
// must outlive the result. Throws Error naming the offending call; the stream is usable afterwards.
// Refuses a graph that is empty, or that allocates memory: such a graph is no fixed piece of work.
std::unique_ptr<CapturedWork> capture_graph(cudaStream_t stream, const std::function<void()>& work);

}  // namespace reprise::cuda
