// What the library GEMM of the comparison path needs done to its operands beforehand, compiled once
// per instruction set. All sets give the same bits.
#pragma once

#include <cstdint>

#include "reprise/kernels/float16.h"
#include "reprise/kernels/nf4.h"

namespace reprise::cpu {

// Elements [begin, end) of the flattened weight; `begin` is a multiple of the block size. `out`
// takes the first of them.
struct OperandKernels {
  void (*dequantize_f32)(const Nf4View& weight, std::int64_t begin, std::int64_t end, float* out);
  void (*dequantize_bf16)(const Nf4View& weight, std::int64_t begin, std::int64_t end,
                          BFloat16* out);
  void (*narrow)(const float* values, std::int64_t count, BFloat16* out);
  void (*widen)(const BFloat16* values, std::int64_t count, float* out);
};

namespace generic {
extern const OperandKernels kOperandKernels;
}
namespace avx2 {
extern const OperandKernels kOperandKernels;
}
namespace avx512 {
extern const OperandKernels kOperandKernels;
}
namespace avx512_bf16 {
extern const OperandKernels kOperandKernels;
}
namespace amx {
extern const OperandKernels kOperandKernels;
}

}  // namespace reprise::cpu
