// Owners of what the CUDA runtime hands out: each is destroyed with its C++ object.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "kernels/cuda/cuda_check.h"

namespace reprise::cuda {

// A destructor cannot throw, and a failure to destroy changes no result.
template <class Raw, cudaError_t (*destroy)(Raw)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(Raw raw) : raw_(raw) {}
  ~Handle() {
    if (raw_ != nullptr) static_cast<void>(destroy(raw_));
  }
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }

  Raw get() const { return raw_; }

 private:
  Raw raw_ = nullptr;
};

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Graph = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

}  // namespace reprise::cuda
