// Streams, events, captures and graphs of the emulated runtime. A stream is lazy: what is put into
// it runs when something forces it, so that a missing synchronisation gives a wrong value each time
// and not once a week.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include "kernels/simt/kernel_table.h"
#include "kernels/simt/runtime.h"

namespace reprise::simt {

struct KernelWork {
  const KernelEntry* kernel;
  const void* function;
  dim3 grid;
  dim3 block;
  std::size_t dynamic_bytes;
  std::vector<std::vector<std::max_align_t>> arguments;  // copies; aligned as any argument may be
};
struct CopyWork {
  void* to;
  const void* from;
  std::size_t bytes;
  cudaMemcpyKind kind;
};
struct FillWork {
  void* to;
  int value;
  std::size_t bytes;
};
using Work = std::variant<KernelWork, CopyWork, FillWork>;

cudaError_t run_work(const Work& work);
cudaError_t run_kernel(const KernelWork& work);
cudaError_t run_copy(const CopyWork& work);
cudaError_t run_fill(const FillWork& work);

struct Capture;

struct Wait {
  std::shared_ptr<CUstream_st> stream;
  std::uint64_t sequence;
};
struct Operation {
  std::vector<Wait> waits;
  std::function<cudaError_t()> run;
};

}  // namespace reprise::simt

struct CUgraphNode_st {
  reprise::simt::Work work;
  std::vector<CUgraphNode_st*> after;
  std::vector<void*> parameters;  // of a kernel: pointers to its arguments, for who asks
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // each after those it depends on
};
struct CUstream_st {
  bool blocking = true;  // waits for the legacy stream and holds it up
  std::deque<reprise::simt::Operation> queue;
  std::uint64_t done = 0;  // operations that have run, and that were ever put in
  std::uint64_t enqueued = 0;
  std::shared_ptr<reprise::simt::Capture> capture;
  std::vector<CUgraphNode_st*> frontier;  // what the next captured operation comes after
};
struct CUevent_st {
  bool timed = true;
  std::shared_ptr<CUstream_st> stream;  // null until it was recorded outside of a capture
  std::uint64_t sequence = 0;
  std::shared_ptr<double> milliseconds;  // when it was passed
  std::shared_ptr<reprise::simt::Capture> capture;
  std::vector<CUgraphNode_st*> frontier;
};

namespace reprise::simt {

struct Capture {
  std::uint64_t id;
  std::unique_ptr<CUgraph_st> graph;
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool valid = true;
  bool active = true;
  std::set<CUstream_st*> members;
  std::vector<const cudaGraphEdgeData*> no_edge_data;
};

// Null, with the code noted, for what is no stream.
std::shared_ptr<CUstream_st> find_stream(cudaStream_t handle);
// Runs what a stream holds up to an operation, and before it what that waits for.
cudaError_t drain(CUstream_st& stream, std::uint64_t upto);
cudaError_t drain_all();
cudaError_t enqueue(const std::shared_ptr<CUstream_st>& stream, std::function<cudaError_t()> run,
                    std::vector<Wait> waits = {});
// Into the graph where the stream is captured, into the stream where it is not.
cudaError_t submit(cudaStream_t handle, Work work);
void reset_streams();

// The rules of capture; each returns cudaSuccess where the call may go on.
cudaError_t refuse_in_capture(const std::string& call);         // potentially unsafe calls
cudaError_t refuse_while_any_capture(const std::string& call);  // device-wide synchronisation
cudaError_t refuse_legacy_use(const std::string& what);
cudaError_t invalidate(Capture& capture, cudaError_t status, const std::string& why);
cudaError_t capture_work(CUstream_st& stream, Work work);
cudaError_t join_capture(CUstream_st& stream, const CUevent_st& event);
void reset_captures();

std::size_t live_device_bytes();

}  // namespace reprise::simt
