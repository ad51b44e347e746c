// Element types of tensors, and the type that the products of a step are computed in.
#pragma once

#include <cstdint>

namespace reprise {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kI32, kI64, kU8 };

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

// kF32: every product and every stored activation is FP32.
// kBF16: both operands of a product are rounded to bf16 (nearest even), sums are FP32, and stored
// activations are bf16 except for the residual stream, norm statistics and the softmax's
// logarithms, which stay FP32. The gradient of the residual stream stays FP32 as well.
enum class ComputeType : std::uint8_t { kF32, kBF16 };

constexpr const char* name_of(ComputeType compute) {
  return compute == ComputeType::kF32 ? "fp32" : "bf16";
}
constexpr DType activation_dtype(ComputeType compute) {
  return compute == ComputeType::kF32 ? DType::kF32 : DType::kBF16;
}

// Whether an op replaces what its output holds, or adds to it.
enum class OutputMode : std::uint8_t { kOverwrite, kAccumulate };

}  // namespace reprise
