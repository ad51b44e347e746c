// Memory that is owned: aligned, zero-filled on request of the kernel only (fresh pages are zero),
// released with its owner. All tensors of a run live in a few of these.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "reprise/kernels/view.h"

namespace reprise {

class Buffer {
 public:
  Buffer() = default;
  // `bytes` of zeros, 64-byte aligned. Throws DoesNotFit naming `what` and the size.
  Buffer(std::int64_t bytes, const std::string& what);
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// A buffer together with what it holds.
struct Tensor {
  Buffer buffer;
  DType dtype = DType::kF32;
  Dims dims;

  bool present() const { return dims.rank() > 0; }
  View view() const { return {buffer.data(), dtype, dims}; }
};

Tensor make_tensor(DType dtype, Dims dims, const std::string& what);

}  // namespace reprise
