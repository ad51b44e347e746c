// 4-bit weights as bitsandbytes 0.50 stores them in safetensors. P.weight holds the packed codes;
// its companions hold the rest: P.weight.absmax, P.weight.quant_map,
// P.weight.quant_state.bitsandbytes__nf4 (JSON) and, when the scales are quantised in turn,
// P.weight.nested_absmax and P.weight.nested_quant_map.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "reprise/runtime/model.h"
#include "reprise/runtime/safetensors.h"

namespace reprise {

// Whether the weight, "model.layers.0.mlp.up_proj.weight", is stored quantised: it has integer type
// or one of the companions. If so, read_bnb_weight says whether it can be used.
bool is_bnb_weight(const SafetensorsModel& model, const std::string& name);

// What the quantisation state of a weight says.
struct BnbState {
  std::int64_t block_size = 64;
  std::string dtype_name;           // of the weight before: "float32", "bfloat16", "float16"
  std::vector<std::int64_t> shape;  // [n, k]
  bool nested = false;              // double quantisation: absmax holds 8-bit codes
  std::int64_t nested_block_size = 256;
  float nested_offset = 0;
};
// Throws InputError naming file, weight and key when the state is missing, malformed or not NF4.
BnbState read_bnb_state(const SafetensorsModel& model, const std::string& name);

// Copies the weight [n, k] with its absmax expanded to FP32. Throws InputError naming file and
// tensor when anything is missing, is not NF4, or disagrees: companions, counts, shape, codebook.
Nf4Weight read_bnb_weight(const SafetensorsModel& model, const std::string& name, std::int64_t n,
                          std::int64_t k);

enum class DoubleQuant : std::uint8_t { kOff, kOn };

struct BnbOptions {
  std::int64_t block_size = 64;
  DoubleQuant double_quant = DoubleQuant::kOff;
};

// A weight quantised for writing.
struct BnbTensors {
  std::vector<std::uint8_t> packed;
  std::vector<float> absmax;               // without double quantisation
  std::vector<std::uint8_t> absmax_codes;  // with it
  std::vector<float> nested_absmax;
  std::string state;  // JSON
};

// `values`: n * k finite weights; `dtype_name` as in BnbState.
BnbTensors quantize_bnb(const float* values, std::int64_t n, std::int64_t k,
                        const std::string& dtype_name, const BnbOptions& options);

// The entries of a quantised weight for write_safetensors; they refer to `tensors`. The packed
// codes come first, and their data may be left out (`tensors.packed` empty) when a source supplies
// it.
std::vector<SafetensorsEntry> bnb_entries(const std::string& name, std::int64_t n, std::int64_t k,
                                          const BnbTensors& tensors);

// The 256 values, ascending, that quantised scales stand for: signed, seven decades, and as many
// evenly spaced values in each decade as its place in the exponent leaves bits for.
// Source: Dettmers, "8-bit approximations for parallelism in deep learning" (2015).
const std::array<float, 256>& dynamic_map();

}  // namespace reprise
