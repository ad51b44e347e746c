// A place where step graphs run: its operations, its workers, and the memory it allocates.
#pragma once

#include <memory>
#include <string>

#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/execution.h"
#include "reprise/kernels/op_table.h"
#include "reprise/runtime/buffer.h"

namespace reprise {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const std::string& name() const = 0;  // "cpu (avx512_bf16, 2 threads)"
  virtual const OpTable& ops() const = 0;
  virtual int threads() const = 0;
  virtual Execution execution() = 0;
  virtual Buffer allocate(std::int64_t bytes, const std::string& what) = 0;
};

struct CpuBackendOptions {
  Isa isa = Isa::kGeneric;
  LinearMode linear = LinearMode::kFused;
  int threads = 1;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);
// The plain double-precision ops on one thread, for tests.
std::unique_ptr<Backend> make_reference_backend();

}  // namespace reprise
