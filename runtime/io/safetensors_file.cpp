#include <algorithm>
#include <cstring>
#include <numeric>

#include "reprise/kernels/error.h"
#include "reprise/kernels/float16.h"
#include "reprise/runtime/quoted.h"
#include "reprise/runtime/safetensors.h"
#include "runtime/io/safetensors_format.h"

namespace reprise {

std::int64_t SafetensorsTensor::count() const {
  std::int64_t n = 1;  // cannot overflow: the header was checked
  for (const std::int64_t size : shape) n *= size;
  return n;
}

std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    if (i == 15 && shape.size() > 16) return text + ", ...]";
  }
  return text + "]";
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  SafetensorsHeader header = parse_safetensors_header(file_.bytes(), in_quotes(path));
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](std::size_t i, std::string_view n) { return tensors_[i].name < n; });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

void read_floats(const SafetensorsTensor& tensor, const std::filesystem::path& file,
                 float* values) {
  const std::byte* source = tensor.data.data();
  const auto count = static_cast<std::size_t>(tensor.count());
  if (count == 0) return;
  if (tensor.dtype == DType::kF32) {
    std::memcpy(values, source, count * sizeof(float));
    return;
  }
  if (tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    throw InputError(in_quotes(file) + ": tensor " + in_quotes(tensor.name) + " has type " +
                     tensor.dtype_name + ", expected F32, BF16 or F16");
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, source + 2 * i, sizeof bits);
    values[i] = tensor.dtype == DType::kBF16 ? to_float(BFloat16{bits}) : to_float(Float16{bits});
  }
}

}  // namespace reprise
