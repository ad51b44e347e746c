// Buffers of the host are anonymous mappings: the kernel hands out zero pages when they are first
// touched, so a large buffer costs nothing before it is used, and all of it returns to the system
// when released.
#include "reprise/runtime/buffer.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "reprise/kernels/error.h"

namespace reprise {
namespace {

void unmap(std::byte* data, std::int64_t bytes) noexcept {
  ::munmap(data, static_cast<std::size_t>(bytes));
}

}  // namespace

std::string readable_size(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (amount >= 1024 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", amount, kUnits[unit]);
  return text.data();
}

Buffer::Buffer(std::int64_t bytes, const std::string& what) : bytes_(bytes), release_(unmap) {
  require(bytes >= 0, "Buffer for " + what + ": negative size");
  if (bytes == 0) return;
  void* memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw DoesNotFit("cannot allocate " + readable_size(bytes) + " for " + what + ": " +
                     std::generic_category().message(errno));
  }
  data_ = static_cast<std::byte*>(memory);
}

Buffer::~Buffer() {
  if (data_ != nullptr) release_(data_, bytes_);
}

Tensor make_tensor(DType dtype, Dims dims, const std::string& what) {
  std::int64_t bytes = size_of(dtype);
  for (int axis = 0; axis < dims.rank(); ++axis) {
    require(dims[axis] >= 0, "tensor " + what + ": negative dimension");
    if (__builtin_mul_overflow(bytes, dims[axis], &bytes)) {
      throw DoesNotFit("cannot allocate " + what + " " + to_string(dims) +
                       ": its size is beyond 64 bits");
    }
  }
  return {Buffer(bytes, what), dtype, dims};
}

}  // namespace reprise
