// Memory that is owned, of the host or of a device, released with its owner. All tensors of a run
// live in a few of these.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "reprise/kernels/view.h"

namespace reprise {

class Buffer {
 public:
  // Gives memory back. Called from a destructor, so it has to report its own failures.
  using Release = void (*)(std::byte* data, std::int64_t bytes) noexcept;

  Buffer() = default;
  // `bytes` of zeros on the host, 64-byte aligned. Throws DoesNotFit naming `what` and the size.
  Buffer(std::int64_t bytes, const std::string& what);
  // Takes over memory of a device.
  Buffer(std::byte* data, std::int64_t bytes, Release release)
      : data_(data), bytes_(bytes), release_(release) {}
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        release_(other.release_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Release release_ = nullptr;
};

// "1.5 GiB": three significant digits are enough to act upon.
std::string readable_size(std::int64_t bytes);

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
