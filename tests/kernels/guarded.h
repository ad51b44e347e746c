// Memory for the operands of an op under test: outputs and scratch start poisoned and lie between
// guard bytes, so that a value that is read before it is written, or a store out of bounds, shows.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/kernels/view.h"

namespace reprise::test {

class Guarded {
 public:
  // `bytes` of 0xff (NaN as F32 and BF16), 64-byte aligned, with guards around them.
  explicit Guarded(std::int64_t bytes);
  Guarded(DType dtype, Dims dims);
  // Holds the values, rounded to `dtype` (F32 or BF16).
  Guarded(const std::vector<float>& values, DType dtype, Dims dims);

  Guarded(Guarded&&) = default;
  Guarded& operator=(Guarded&&) = default;

  View view() const { return {data_, dtype_, dims_}; }
  Scratch scratch() const { return {data_, bytes_}; }
  std::vector<float> values() const;  // as FP32
  bool intact() const;                // whether no guard byte has changed

 private:
  std::vector<std::byte> memory_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  DType dtype_ = DType::kU8;
  Dims dims_;
};

}  // namespace reprise::test
