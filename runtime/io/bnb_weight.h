// A 4-bit weight as bitsandbytes 0.50 stores it in safetensors: P.weight holds the packed codes,
// its companions P.weight.{absmax, quant_map, quant_state.bitsandbytes__nf4} and, double-quantised,
// P.weight.nested_{absmax, quant_map} hold the rest.
#pragma once

#include <cstdint>
#include <string>

#include "reprise/runtime/model.h"
#include "reprise/runtime/safetensors.h"

namespace reprise {

// Whether the weight, "model.layers.0.mlp.up_proj.weight", is stored quantised: it has integer type
// or one of the companions. If so, read_bnb_weight says whether it can be used.
bool is_bnb_weight(const SafetensorsModel& model, const std::string& name);

// Copies the weight [n, k] with its absmax expanded to FP32. Throws InputError naming file and
// tensor when anything is missing, is not NF4, or disagrees: companions, counts, shape, codebook.
Nf4Weight read_bnb_weight(const SafetensorsModel& model, const std::string& name, std::int64_t n,
                          std::int64_t k);

// The logical shape [n, k] that the stored state of a weight claims.
std::vector<std::int64_t> bnb_weight_shape(const SafetensorsModel& model, const std::string& name);

}  // namespace reprise
