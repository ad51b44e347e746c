#include "reprise/runtime/bnb_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"
#include "runtime/io/checked.h"
#include "runtime/io/strict_json.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr const char* kStateSuffix = ".quant_state.bitsandbytes__nf4";
constexpr const char* kFp4StateSuffix = ".quant_state.bitsandbytes__fp4";

// A weight and its companions; messages start with the file and the weight's name.
class StoredWeight {
 public:
  StoredWeight(const SafetensorsModel& model, const std::string& name)
      : model_(model),
        name_(name),
        packed_(model.at(name)),
        where_(in_quotes(model.file_of(packed_).path()) + ": tensor " + in_quotes(name)) {}

  const std::string& where() const { return where_; }
  const SafetensorsTensor& packed() const { return packed_; }
  const SafetensorsTensor* find(const char* suffix) const { return model_.find(name_ + suffix); }
  const SafetensorsTensor& companion(const char* suffix) const {
    if (const SafetensorsTensor* tensor = find(suffix)) return *tensor;
    throw InputError(where_ + " is quantised, but " + in_quotes(name_ + suffix) + " is missing");
  }
  // A companion of that type and number of elements.
  const SafetensorsTensor& companion(const char* suffix, DType dtype, std::int64_t count) const {
    const SafetensorsTensor& tensor = companion(suffix);
    if (tensor.dtype != dtype || tensor.count() != count) {
      throw InputError(where_ + ": " + in_quotes(tensor.name) + " is " + tensor.dtype_name + " " +
                       to_string(tensor.shape) + ", expected " + std::to_string(count) +
                       " elements of " + name_of(dtype));
    }
    return tensor;
  }
  // FP32 values, copied since the file's data is not aligned, all finite.
  std::vector<float> floats(const char* suffix, std::int64_t count) const {
    const SafetensorsTensor& tensor = companion(suffix, DType::kF32, count);
    std::vector<float> values(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    if (const std::int64_t bad = first_not_finite(values.data(), count); bad >= 0) {
      throw InputError(where_ + ": element " + std::to_string(bad) + " of " +
                       in_quotes(tensor.name) + " is not finite");
    }
    return values;
  }

 private:
  const SafetensorsModel& model_;
  std::string name_;
  const SafetensorsTensor& packed_;
  std::string where_;
};

void read_nested_state(const json& state, const std::string& where, BnbState& result) {
  result.nested = true;
  result.nested_block_size = json_integer(state, "nested_blocksize", {64, 4096}, where);
  const std::string dtype = json_string(state, "nested_dtype", where);
  if (dtype != "float32") {
    throw InputError(where + ": \"nested_dtype\" is " + in_quotes(dtype) +
                     ", only \"float32\" is supported");
  }
  result.nested_offset = static_cast<float>(json_number(state, "nested_offset", where));
  if (!std::isfinite(result.nested_offset)) {
    throw InputError(where + ": \"nested_offset\" does not fit FP32");
  }
}

BnbState parse_state(const json& state, const std::string& where) {
  static constexpr std::array<std::string_view, 7> kKeys = {
      "quant_type",       "blocksize",    "dtype",        "shape",
      "nested_blocksize", "nested_dtype", "nested_offset"};
  const std::string type = json_string(state, "quant_type", where);
  if (type != "nf4") {
    throw InputError(where + ": \"quant_type\" is " + in_quotes(type) +
                     ", only \"nf4\" is supported");
  }
  bool nested = false;
  for (const auto& [key, value] : state.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      throw InputError(where + ": unknown key " + in_quotes(key));
    }
    nested |= key.starts_with("nested_");
  }
  BnbState result;
  result.block_size = json_integer(state, "blocksize", {64, 4096}, where);
  if ((result.block_size & (result.block_size - 1)) != 0) {
    throw InputError(where + ": \"blocksize\" is " + std::to_string(result.block_size) +
                     ", must be a power of two");
  }
  result.dtype_name = json_string(state, "dtype", where);
  if (result.dtype_name != "float32" && result.dtype_name != "float16" &&
      result.dtype_name != "bfloat16") {
    throw InputError(where + ": \"dtype\" is " + in_quotes(result.dtype_name) +
                     ", expected float32, float16 or bfloat16");
  }
  const json& shape = json_member(state, "shape", where);
  if (!shape.is_array() || shape.size() != 2) {
    throw InputError(where + ": \"shape\" must have two dimensions");
  }
  for (const json& size : shape) {
    result.shape.push_back(json_size(size, where + ": \"shape\""));
    if (result.shape.back() == 0) throw InputError(where + ": \"shape\" has a dimension 0");
  }
  if (nested) read_nested_state(state, where, result);
  return result;
}

BnbState read_state(const StoredWeight& weight) {
  if (weight.packed().dtype_name == "I8") {
    throw InputError(weight.where() + " is quantised to 8 bits, only nf4 is supported");
  }
  if (weight.find(kFp4StateSuffix) != nullptr) {
    throw InputError(weight.where() + " is quantised to fp4, only nf4 is supported");
  }
  const SafetensorsTensor& tensor = weight.companion(kStateSuffix);
  if (tensor.dtype != DType::kU8) {
    throw InputError(weight.where() + ": " + in_quotes(tensor.name) + " is " + tensor.dtype_name +
                     ", expected U8");
  }
  const std::string_view text(reinterpret_cast<const char*>(tensor.data.data()),
                              tensor.data.size());
  const std::string where = weight.where() + ": quant_state";
  // It has about 150 bytes.
  return parse_state(parse_strict_json(text, where, {4096, 4, 64}), where);
}

void require_codebook(const StoredWeight& weight) {
  const SafetensorsTensor& map = weight.companion(".quant_map", DType::kF32, 16);
  if (std::memcmp(map.data.data(), kNf4Codebook.data(), sizeof kNf4Codebook) != 0) {
    throw InputError(weight.where() + ": " + in_quotes(map.name) +
                     " does not hold the 16 values of NF4");
  }
}

void require_shape(const StoredWeight& weight, const BnbState& state, std::int64_t n,
                   std::int64_t k) {
  if (state.shape != std::vector{n, k}) {
    throw InputError(weight.where() + ": quant_state says shape " + to_string(state.shape) +
                     ", the model expects " + to_string(std::vector{n, k}));
  }
  const SafetensorsTensor& packed = weight.packed();
  const std::int64_t count = checked_mul(n, k, weight.where());
  const std::int64_t bytes = count / 2 + count % 2;
  if (packed.dtype != DType::kU8 || packed.count() != bytes) {
    throw InputError(weight.where() + " is " + packed.dtype_name + " " + to_string(packed.shape) +
                     ", expected " + std::to_string(bytes) + " elements of U8 for " +
                     to_string(state.shape));
  }
}

void expand_absmax(const StoredWeight& weight, const BnbState& state, std::int64_t blocks,
                   float* absmax) {
  if (!state.nested) {
    const std::vector<float> values = weight.floats(".absmax", blocks);
    std::copy(values.begin(), values.end(), absmax);
    return;
  }
  const SafetensorsTensor& codes = weight.companion(".absmax", DType::kU8, blocks);
  const std::vector<float> map = weight.floats(".nested_quant_map", 256);
  const std::vector<float> nested_absmax =
      weight.floats(".nested_absmax", nf4_blocks(blocks, state.nested_block_size));
  expand_nested_absmax({.codes = reinterpret_cast<const std::uint8_t*>(codes.data.data()),
                        .map = map.data(),
                        .nested_absmax = nested_absmax.data(),
                        .blocks = blocks,
                        .nested_block_size = state.nested_block_size,
                        .offset = state.nested_offset},
                       absmax);
  if (const std::int64_t bad = first_not_finite(absmax, blocks); bad >= 0) {
    throw InputError(weight.where() + ": the scale of block " + std::to_string(bad) +
                     " is not finite");
  }
}

}  // namespace

bool is_bnb_weight(const SafetensorsModel& model, const std::string& name) {
  for (const char* suffix : {kStateSuffix, kFp4StateSuffix, ".absmax", ".quant_map"}) {
    if (model.find(name + suffix) != nullptr) return true;
  }
  const SafetensorsTensor* tensor = model.find(name);
  return tensor != nullptr && (tensor->dtype == DType::kU8 || tensor->dtype_name == "I8");
}

Nf4Weight read_bnb_weight(const SafetensorsModel& model, const std::string& name, std::int64_t n,
                          std::int64_t k) {
  const StoredWeight weight(model, name);
  const BnbState state = read_state(weight);
  require_shape(weight, state, n, k);
  require_codebook(weight);
  const std::int64_t blocks = nf4_blocks(n * k, state.block_size);
  Nf4Weight result;
  result.n = n;
  result.k = k;
  result.block_size = state.block_size;
  result.order = NibbleOrder::kHighFirst;
  result.packed = Buffer(weight.packed().count(), name);
  result.absmax = Buffer(blocks * size_of(DType::kF32), name + ".absmax");
  const std::span<const std::byte> packed = weight.packed().data;
  if (!packed.empty()) std::memcpy(result.packed.data(), packed.data(), packed.size());
  expand_absmax(weight, state, blocks, reinterpret_cast<float*>(result.absmax.data()));
  return result;
}

BnbState read_bnb_state(const SafetensorsModel& model, const std::string& name) {
  return read_state(StoredWeight(model, name));
}

}  // namespace reprise
