#include <algorithm>
#include <array>
#include <cstring>
#include <ostream>
#include <set>
#include <span>

#include "apps/nf4_tool/commands.h"
#include "apps/nf4_tool/round_to_half.h"
#include "reprise/kernels/error.h"
#include "reprise/kernels/float16.h"
#include "reprise/kernels/nf4.h"
#include "reprise/runtime/quoted.h"

namespace reprise::nf4_tool {
namespace {

constexpr std::array<std::string_view, 6> kCompanions = {".quant_state.bitsandbytes__nf4",
                                                         ".quant_state.bitsandbytes__fp4",
                                                         ".absmax",
                                                         ".quant_map",
                                                         ".nested_absmax",
                                                         ".nested_quant_map"};

// The weight that a companion belongs to; empty for a tensor that is none.
std::string weight_of(const std::string& name) {
  for (const std::string_view suffix : kCompanions) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return {};
}

DType stored_dtype(const BnbState& state) {
  if (state.dtype_name == "float32") return DType::kF32;
  return state.dtype_name == "float16" ? DType::kF16 : DType::kBF16;
}

// The values of `values` in the given type, as bytes.
std::vector<std::byte> converted(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  if (values.empty()) return bytes;
  if (dtype == DType::kF32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits =
        dtype == DType::kBF16 ? to_bfloat16(values[i]).bits : round_to_half(values[i]).bits;
    std::memcpy(bytes.data() + 2 * i, &bits, sizeof bits);
  }
  return bytes;
}

}  // namespace

std::vector<std::string> quantized_names(const SafetensorsModel& model) {
  std::set<std::string> names;
  for (const auto& file : model.files()) {
    for (const SafetensorsTensor& tensor : file->tensors()) {
      if (std::string name = weight_of(tensor.name); !name.empty()) names.insert(std::move(name));
    }
  }
  return {names.begin(), names.end()};
}

void dequantize(const DequantizeOptions& options, std::ostream& log) {
  const SafetensorsModel model(options.input);
  const std::vector<std::string> names = quantized_names(model);
  if (names.empty()) throw InputError(in_quotes(options.input) + ": has no NF4 weight");
  std::vector<SafetensorsEntry> entries;
  std::vector<DType> dtypes;  // of the first entries, the weights
  for (const std::string& name : names) {
    const BnbState state = read_bnb_state(model, name);
    dtypes.push_back(options.dtype.value_or(stored_dtype(state)));
    entries.push_back({name, name_of(dtypes.back()), state.shape, {}});
  }
  for (const auto& file : model.files()) {
    for (const SafetensorsTensor& tensor : file->tensors()) {
      const bool replaced = std::binary_search(names.begin(), names.end(), tensor.name) ||
                            !weight_of(tensor.name).empty();
      if (replaced) continue;
      entries.push_back({tensor.name, tensor.dtype_name, tensor.shape, tensor.data});
    }
  }
  std::vector<float> values;
  std::vector<std::byte> bytes;
  write_safetensors(options.output, entries, {{"format", "pt"}}, [&](std::size_t index) {
    if (index >= names.size()) return entries[index].data;
    const std::vector<std::int64_t>& shape = entries[index].shape;
    const Nf4Weight weight = read_bnb_weight(model, names[index], shape[0], shape[1]);
    model.drop(model.at(names[index]));
    values.resize(static_cast<std::size_t>(weight.view().count()));
    dequantize_nf4(weight.view(), values.data());
    bytes = converted(values, dtypes[index]);
    return std::span<const std::byte>(bytes);
  });
  log << "dequantised " << names.size() << " weights, copied " << entries.size() - names.size()
      << " tensors: " << options.output.native() << "\n";
}

}  // namespace reprise::nf4_tool
