// Safetensors: named dense tensors in one file, or in several named by an index. Files are
// untrusted: everything that the header says is checked against the file before a byte of data is
// reachable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/kernels/view.h"
#include "reprise/runtime/mapped_file.h"

namespace reprise {

struct SafetensorsTensor {
  std::string name;
  std::string dtype_name;      // as the file says it: "BF16"
  std::optional<DType> dtype;  // nothing for a type of the format that Reprise does not compute in
  std::vector<std::int64_t> shape;  // [] for a scalar; a dimension may be 0
  std::int64_t offset = 0;          // of the data, from the start of the file
  // In the mapped file and not aligned: read elements with memcpy.
  std::span<const std::byte> data;

  std::int64_t count() const;
};

// Shape as in messages: "[128, 320]".
std::string to_string(const std::vector<std::int64_t>& shape);

class SafetensorsFile {
 public:
  // Maps the file and checks the whole header. Throws InputError naming file, tensor or offset,
  // what was expected and what was found.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t size() const { return file_.size(); }
  // In the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsTensor* find(std::string_view name) const;  // null: not there

  // Lets the pages of a tensor go that has been used up.
  void drop(const SafetensorsTensor& tensor) const { file_.drop(tensor.data); }

 private:
  MappedFile file_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::size_t> by_name_;  // indices into tensors_, sorted by name
  std::map<std::string, std::string> metadata_;
};

// The tensors of a model: one file, or a folder with model.safetensors, or with
// model.safetensors.index.json and the shards that it names. A shard is a plain name in the same
// folder; the index and the shards must agree about every tensor.
class SafetensorsModel {
 public:
  explicit SafetensorsModel(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }

  const SafetensorsTensor* find(std::string_view name) const;  // null: not there
  // Throws InputError naming the tensor and the model's path when it is missing.
  const SafetensorsTensor& at(std::string_view name) const;
  // The file that a tensor of this model lies in.
  const SafetensorsFile& file_of(const SafetensorsTensor& tensor) const;
  void drop(const SafetensorsTensor& tensor) const { file_of(tensor).drop(tensor); }

 private:
  std::filesystem::path path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // addresses of tensors never change
};

// Copies `tensor` as FP32 into `values`, tensor.count() of them; F32, BF16 and F16 are accepted.
// Throws InputError naming `file` and the tensor for any other type.
void read_floats(const SafetensorsTensor& tensor, const std::filesystem::path& file, float* values);

// A tensor to be written. `data` must have exactly the bytes of dtype and shape; it may be left
// empty when the data comes from a TensorSource.
struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;  // name_of(DType), or any other type of the format
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};
// Called once for each entry, with its index in the caller's list; returns bytes that stay valid
// until the next call. The calls come in the order of the file: larger element types first, then by
// name, so that every tensor is aligned to its element type.
using TensorSource = std::function<std::span<const std::byte>(std::size_t index)>;

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes the file whole or not at all (durable_file.h).
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<SafetensorsEntry>& entries,
                       const SafetensorsMetadata& metadata = {});
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<SafetensorsEntry>& entries,
                       const SafetensorsMetadata& metadata, const TensorSource& source);

}  // namespace reprise
