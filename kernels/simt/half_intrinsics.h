// Functions on 16-bit floats that CUDA's headers leave out on the host. The product is exact in
// double and the sum has 53 bits before it is rounded to 8 or 11, so a result differs from a
// device's only where the sum needs more than 53 bits and then lies on a tie.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

inline __half __hfma(__half x, __half y, __half z) {
  return __double2half(static_cast<double>(__half2float(x)) * __half2float(y) + __half2float(z));
}
inline __half2 __hfma2(__half2 x, __half2 y, __half2 z) {
  return __halves2half2(__hfma(__low2half(x), __low2half(y), __low2half(z)),
                        __hfma(__high2half(x), __high2half(y), __high2half(z)));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 x, __nv_bfloat16 y, __nv_bfloat16 z) {
  return __double2bfloat16(static_cast<double>(__bfloat162float(x)) * __bfloat162float(y) +
                           __bfloat162float(z));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 x, __nv_bfloat162 y, __nv_bfloat162 z) {
  return __halves2bfloat162(__hfma(__low2bfloat16(x), __low2bfloat16(y), __low2bfloat16(z)),
                            __hfma(__high2bfloat16(x), __high2bfloat16(y), __high2bfloat16(z)));
}
