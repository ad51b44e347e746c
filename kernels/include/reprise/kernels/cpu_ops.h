// The CPU's implementations, one set per instruction set, chosen at run time.
#pragma once

#include <optional>
#include <string_view>

#include "reprise/kernels/op_table.h"

namespace reprise {

enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };

const char* name_of(Isa isa);  // "generic", "avx2", "avx512", "avx512_bf16", "amx"
std::optional<Isa> parse_isa(std::string_view name);
Isa detect_isa();  // what the CPU and the system offer

// How the frozen linear layers are computed. kFused: NF4 is decoded inside the product, no
// dequantised matrix exists. kDequant: each call dequantises into one reused buffer, then a
// library GEMM. kCached: a library GEMM on weights that were dequantised once.
enum class LinearMode { kFused, kDequant, kCached };

const char* name_of(LinearMode mode);  // "fused", "dequant", "cached"

// `isa` must not be above detect_isa(). Lists hold implementations for `isa` and below it.
OpTable cpu_ops(Isa isa, LinearMode mode);

}  // namespace reprise
