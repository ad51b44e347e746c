// Layout of one operand: guard | alignment | data | guard.
#include "tests/kernels/guarded.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "reprise/kernels/float16.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kGuardBytes = 4096;  // more than any vector store or tile row reaches over
constexpr std::byte kGuard{0xa5};
constexpr std::byte kPoison{0xff};

}  // namespace

Guarded::Guarded(std::int64_t bytes) : bytes_(bytes), dims_({bytes}) {
  memory_.assign(static_cast<std::size_t>(bytes + 2 * kGuardBytes + 64), kGuard);
  const auto start = std::bit_cast<std::uintptr_t>(memory_.data() + kGuardBytes);
  data_ = memory_.data() + kGuardBytes + (64 - start % 64) % 64;
  std::fill_n(data_, bytes, kPoison);
}

Guarded::Guarded(DType dtype, Dims dims) : Guarded(dims.count() * size_of(dtype)) {
  dtype_ = dtype;
  dims_ = dims;
}

Guarded::Guarded(const std::vector<float>& values, DType dtype, Dims dims) : Guarded(dtype, dims) {
  if (dtype == DType::kF32) {
    std::memcpy(data_, values.data(), values.size() * sizeof(float));
    return;
  }
  auto* const out = view().as<BFloat16>();
  std::transform(values.begin(), values.end(), out, to_bfloat16);
}

std::vector<float> Guarded::values() const {
  std::vector<float> values(static_cast<std::size_t>(dims_.count()));
  if (dtype_ == DType::kF32) {
    std::memcpy(values.data(), data_, values.size() * sizeof(float));
    return values;
  }
  const auto* const from = view().as<BFloat16>();
  std::transform(from, from + dims_.count(), values.begin(),
                 [](BFloat16 value) { return to_float(value); });
  return values;
}

bool Guarded::intact() const {
  const auto is_guard = [](std::byte byte) { return byte == kGuard; };
  const std::byte* const end = memory_.data() + memory_.size();
  return std::all_of(memory_.data(), static_cast<const std::byte*>(data_), is_guard) &&
         std::all_of(static_cast<const std::byte*>(data_) + bytes_, end, is_guard);
}

}  // namespace reprise::test
