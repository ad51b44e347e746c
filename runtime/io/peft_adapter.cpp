// adapter_model.safetensors of PEFT: keys base_model.model.<module>.lora_{A,B}.weight, where A is
// [rank, in_features] and B is [out_features, rank].
#include <algorithm>
#include <cmath>
#include <set>
#include <system_error>

#include "reprise/kernels/error.h"
#include "reprise/kernels/nf4.h"
#include "reprise/runtime/durable_file.h"
#include "reprise/runtime/lora.h"
#include "reprise/runtime/quoted.h"
#include "reprise/runtime/safetensors.h"
#include "runtime/io/peft_files.h"
#include "runtime/io/safetensors_format.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// One of the two matrices of a slot.
struct Matrix {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // into the flat buffer
  std::int64_t count = 0;
};

std::vector<Matrix> matrices(const LoraLayout& layout) {
  std::vector<Matrix> result;
  for (const LoraSlot& slot : layout.slots) {
    const std::string base = "base_model.model." + module_name(slot.layer, slot.projection);
    result.push_back(
        {base + ".lora_A.weight", {slot.rank, slot.in_features}, slot.a_offset, slot.a_count()});
    result.push_back(
        {base + ".lora_B.weight", {slot.out_features, slot.rank}, slot.b_offset, slot.b_count()});
  }
  return result;
}

fs::path weights_path(const fs::path& directory) {
  const fs::path path = directory / kAdapterWeightsName;
  const fs::path pickle = directory / "adapter_model.bin";
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::exists(pickle, ignored)) {
    throw InputError(in_quotes(path) + ": is missing; " + in_quotes(pickle) +
                     " is a pickle, which can run code when it is read. Convert it once: load it "
                     "with PEFT and call save_pretrained(DIR)");
  }
  return path;
}

void read_matrix(const SafetensorsFile& file, const Matrix& matrix, float* values) {
  const std::string where = in_quotes(file.path()) + ": tensor " + in_quotes(matrix.name);
  const SafetensorsTensor* tensor = file.find(matrix.name);
  if (tensor == nullptr) {
    throw InputError(where + " is missing; the configuration and the model call for it");
  }
  if (tensor->shape != matrix.shape) {
    throw InputError(where + " has shape " + to_string(tensor->shape) + ", expected " +
                     to_string(matrix.shape));
  }
  read_floats(*tensor, file.path(), values);
  if (const std::int64_t bad = first_not_finite(values, matrix.count); bad >= 0) {
    throw InputError(where + ": element " + std::to_string(bad) + " is not finite");
  }
}

}  // namespace

void read_lora_weights(const fs::path& directory, const LoraLayout& layout, float* params) {
  const SafetensorsFile file(weights_path(directory));
  std::set<std::string> expected;
  // Filled only when everything has been read: an error leaves `params` as it was.
  std::vector<float> values(static_cast<std::size_t>(layout.count), 0.0f);
  for (const Matrix& matrix : matrices(layout)) {
    expected.insert(matrix.name);
    read_matrix(file, matrix, values.data() + matrix.offset);
  }
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (!expected.contains(tensor.name)) {
      throw InputError(in_quotes(file.path()) + ": tensor " + in_quotes(tensor.name) +
                       " belongs to no target module of the configuration and the model");
    }
  }
  std::copy(values.begin(), values.end(), params);
}

void write_lora(const fs::path& directory, const LoraConfig& lora, const LoraLayout& layout,
                const float* params, const std::string& base_model) {
  std::vector<SafetensorsEntry> entries;
  for (const Matrix& matrix : matrices(layout)) {
    const float* values = params + matrix.offset;
    if (const std::int64_t bad = first_not_finite(values, matrix.count); bad >= 0) {
      throw NotFiniteError(in_quotes(directory) + ": not written: element " + std::to_string(bad) +
                           " of " + matrix.name + " is " + std::to_string(values[bad]));
    }
    const std::span<const float> span(values, static_cast<std::size_t>(matrix.count));
    entries.push_back({matrix.name, name_of(DType::kF32), matrix.shape, std::as_bytes(span)});
  }
  const SafetensorsPlan plan = plan_safetensors(entries, {{"format", "pt"}});
  ByteParts weights = {std::as_bytes(std::span(plan.head))};
  for (const std::size_t i : plan.order) weights.push_back(entries[i].data);
  const std::string config = peft_config_text(lora, base_model);
  // The configuration last: without it the folder is no adapter.
  replace_folder_files(directory, {{kAdapterWeightsName, std::move(weights)},
                                   {kAdapterConfigName, {std::as_bytes(std::span(config))}}});
}

}  // namespace reprise
