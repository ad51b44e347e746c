// One product through oneDNN's matmul, the library GEMM of the comparison path. All differences
// between oneDNN 2 and 3 are in onednn_gemm.cpp.
#pragma once

#include <cstdint>

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise::cpu {

enum class Transpose : std::uint8_t { kNo, kYes };

//   c (+)= scale * a . b + bias + addend
// Sums are FP32; the result is rounded once when c is BF16. A scale and a bias are never given
// together: the library would scale both.
struct LibraryGemm {
  ConstView a;  // F32 or BF16 [M, K]
  ConstView b;  // of a's type, [K, N]; [N, K] if transposed
  Transpose transpose_b = Transpose::kNo;
  float scale = 1;
  ConstView bias;    // F32 [N]; not present: none
  ConstView addend;  // F32 [M, N]; not present: none
  View c;            // F32 or BF16 [M, N]
  OutputMode mode = OutputMode::kOverwrite;
};

// Whether the library has this product on this CPU.
Support library_supports(const LibraryGemm& gemm);
std::int64_t library_scratch_bytes(const LibraryGemm& gemm, int threads);
void run_library_gemm(const LibraryGemm& gemm, Scratch scratch, int threads);

}  // namespace reprise::cpu
