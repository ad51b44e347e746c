// The backends that run on the host: the optimised ops of the CPU on a pool of workers, and the
// reference ops on one.
#include <memory>
#include <string>
#include <utility>

#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/op_table.h"
#include "reprise/kernels/thread_pool.h"
#include "reprise/runtime/backend.h"

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
