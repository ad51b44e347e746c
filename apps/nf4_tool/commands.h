// The commands of nf4_tool. Each throws the types of reprise/kernels/error.h.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "reprise/kernels/dtype.h"
#include "reprise/runtime/bnb_weight.h"

namespace reprise::nf4_tool {

struct QuantizeOptions {
  std::filesystem::path input;   // a file, or a folder with model.safetensors or an index
  std::filesystem::path output;  // always one file
  BnbOptions storage;
  std::vector<std::string> suffixes;  // of the weights to quantise: "q_proj.weight"
};
// Quantises the chosen weights and copies every other tensor. No more than one weight is in memory
// at a time, so each is quantised twice: for its scales, which the header needs, and for its codes.
void quantize(const QuantizeOptions& options, std::ostream& log);

struct DequantizeOptions {
  std::filesystem::path input;
  std::filesystem::path output;
  std::optional<DType> dtype;  // F32, BF16 or F16; nothing: what each weight was before
};
// Replaces each NF4 weight and its companions by the values that they stand for.
void dequantize(const DequantizeOptions& options, std::ostream& log);

// Lists the tensors, and for each NF4 weight what its state says.
void inspect(const std::filesystem::path& input, std::ostream& out);

// The weights of `model` that have a companion of bitsandbytes' layout, sorted.
std::vector<std::string> quantized_names(const SafetensorsModel& model);

}  // namespace reprise::nf4_tool
