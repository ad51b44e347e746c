// The backends that run on the host: the optimised ops of the CPU on a pool of workers, and the
// reference ops on one.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/op_table.h"
#include "reprise/kernels/thread_pool.h"
#include "reprise/runtime/backend.h"
#include "runtime/memory/available_memory.h"

namespace reprise {
namespace {

class HostBackend final : public Backend {
 public:
  HostBackend(std::string name, OpTable ops, int threads)
      : name_(std::move(name)), ops_(std::move(ops)), pool_(threads) {}

  const std::string& name() const override { return name_; }
  const OpTable& ops() const override { return ops_; }
  int threads() const override { return pool_.threads(); }
  Execution execution() override { return {.pool = &pool_, .stream = nullptr}; }
  Buffer allocate(std::int64_t bytes, const std::string& what) override {
    return Buffer(bytes, what);
  }
  std::int64_t available_bytes() override { return available_host_bytes(); }
  bool host_memory() const override { return true; }
  void upload(void* device, const void* host, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<std::size_t>(bytes));
  }
  void download(void* host, const void* device, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, static_cast<std::size_t>(bytes));
  }
  void fill(void* device, std::uint8_t byte, std::int64_t bytes) override {
    if (bytes > 0) std::memset(device, byte, static_cast<std::size_t>(bytes));
  }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>&) override { return nullptr; }

 private:
  std::string name_;
  OpTable ops_;
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  require(options.threads >= 1, "a CPU backend needs at least one thread");
  std::string name = std::string("cpu (") + name_of(options.isa) + ", " +
                     std::to_string(options.threads) +
                     (options.threads == 1 ? " thread)" : " threads)");
  return std::make_unique<HostBackend>(std::move(name), cpu_ops(options.isa, options.linear),
                                       options.threads);
}

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<HostBackend>("reference (1 thread)", reference_ops(), 1);
}

}  // namespace reprise
