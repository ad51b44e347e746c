// A place where step graphs run: its operations, its memory, and how it captures and replays.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/execution.h"
#include "reprise/kernels/op_table.h"
#include "reprise/runtime/buffer.h"

namespace reprise {

// A node of a device's graph as its driver reports it.
struct CapturedNode {
  std::string type;  // "kernel", "memcpy", "memset"
  std::string name;  // of the kernel; "" for other types
};

// What a device captured: replays as one piece.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Enqueues one run. Allocates nothing on the device and does not wait for it.
  virtual void replay() = 0;
  virtual const std::vector<CapturedNode>& nodes() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const std::string& name() const = 0;  // "cpu (avx512_bf16, 2 threads)"
  virtual const OpTable& ops() const = 0;
  virtual int threads() const = 0;  // of the host that share an op; 1 on a device
  virtual Execution execution() = 0;
  virtual Buffer allocate(std::int64_t bytes, const std::string& what) = 0;
  virtual std::int64_t available_bytes() = 0;  // that allocate() could still give out

  // Whether the host reads and writes the memory of allocate() itself. If not, only the following
  // three reach it; they keep the order of the work that was enqueued before and after them.
  virtual bool host_memory() const = 0;
  // The host's memory may be used again when this returns.
  virtual void upload(void* device, const void* host, std::int64_t bytes) = 0;
  // Waits until all work that was enqueued before is done.
  virtual void download(void* host, const void* device, std::int64_t bytes) = 0;
  virtual void fill(void* device, std::uint8_t byte, std::int64_t bytes) = 0;

  // Records what `work` enqueues on execution() instead of running it. Null where there is nothing
  // to record into, as on CPUs: the calls themselves are then what is replayed. Throws Error naming
  // the call that cannot be captured; nothing is left half-recorded.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) = 0;
};

struct CpuBackendOptions {
  Isa isa = Isa::kGeneric;
  LinearMode linear = LinearMode::kFused;
  int threads = 1;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);
// The plain double-precision ops on one thread, for tests.
std::unique_ptr<Backend> make_reference_backend();
// The current CUDA device. Throws UsageError saying what is missing: a build with CUDA, a driver, a
// device, or a device that the build has code for.
std::unique_ptr<Backend> make_cuda_backend();
// The same CUDA sources on a device that is emulated on the host, thread by thread: for tests and
// for looking into kernels, not for speed. Loads libreprise_emulated.so.
std::unique_ptr<Backend> make_emulated_backend();

}  // namespace reprise
