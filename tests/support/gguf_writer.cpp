#include "tests/support/gguf_writer.h"

namespace reprise::test {

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string gguf_string(std::string_view text) {
  return bytes_of(std::uint64_t{text.size()}).append(text);
}

void GgufWriter::key(std::string_view name, std::uint32_t type, std::string_view value) {
  ++keys_;
  metadata_.append(gguf_string(name)).append(bytes_of(type)).append(value);
}

void GgufWriter::u32(std::string_view name, std::uint32_t value) { key(name, 4, bytes_of(value)); }
void GgufWriter::f32(std::string_view name, float value) { key(name, 6, bytes_of(value)); }
void GgufWriter::string(std::string_view name, std::string_view value) {
  key(name, 8, gguf_string(value));
}

void GgufWriter::tensor(std::string_view name, std::uint32_t type,
                        const std::vector<std::int64_t>& dims, std::string_view data) {
  data_.resize((data_.size() + alignment - 1) / alignment * alignment);
  tensor_at(name, type, dims, data_.size());
  data_.append(data);
}

void GgufWriter::tensor_at(std::string_view name, std::uint32_t type,
                           const std::vector<std::int64_t>& dims, std::uint64_t offset) {
  ++tensors_;
  infos_.append(gguf_string(name)).append(bytes_of(static_cast<std::uint32_t>(dims.size())));
  for (const std::int64_t dim : dims) infos_.append(bytes_of(dim));
  infos_.append(bytes_of(type)).append(bytes_of(offset));
}

std::string GgufWriter::image() const {
  std::string image = "GGUF" + bytes_of(version) + bytes_of(tensors_) + bytes_of(keys_);
  image.append(metadata_).append(infos_);
  image.resize((image.size() + alignment - 1) / alignment * alignment);
  return image.append(data_);
}

}  // namespace reprise::test
