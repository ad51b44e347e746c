// Turning loaded or generated FP32 values into a model's tensors.
#pragma once

#include <functional>
#include <string>

#include "reprise/runtime/model.h"

namespace reprise {

// Fills `out` with elements [begin, begin + count) of a tensor, as FP32.
using FillRange = std::function<void(std::int64_t begin, std::int64_t count, float* out)>;

struct QuantizeRequest {
  std::string name;  // for messages
  std::int64_t n = 0, k = 0;
  std::int64_t block_size = 64;
  ThreadPool* pool = nullptr;  // null: this thread alone
};

// NF4 of a weight whose values come in ranges; only a few of them are in memory as FP32 at a time.
// Throws InputError naming the tensor and the element when a value is not finite.
Nf4Weight quantize_weight(const QuantizeRequest& request, const FillRange& fill);

// A tensor of `dtype` (F32 or BF16, rounded to nearest even) from such ranges; refuses values that
// are not finite in the same way.
Tensor dense_tensor(DType dtype, Dims dims, const std::string& name, const FillRange& fill);

}  // namespace reprise
