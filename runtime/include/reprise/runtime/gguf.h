// GGUF, versions 2 and 3: typed metadata and named tensors, most of them quantised in blocks. Files
// are untrusted: every count, length and offset is checked against the file before a byte of data
// is reachable, and nothing is allocated beyond a small multiple of what the file holds.
// Source: the format's specification in the ggml repository (docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/runtime/mapped_file.h"

namespace reprise {

// The format's own numbers.
enum class GgufValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};

// A value of the metadata, still in the mapped file and not aligned.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element = GgufValueType::kU8;  // of an array; otherwise the type itself
  std::int64_t count = 1;                      // elements of an array
  std::span<const std::byte> data;             // strings have a 64-bit length each in front
};

// How a tensor type stores its elements.
struct GgufBlockType {
  std::uint32_t id;
  const char* name;         // "Q4_1"
  std::int64_t block_size;  // consecutive elements that are stored together
  std::int64_t block_bytes;
  // Writes blocks * block_size values; null: Reprise does not read this type.
  void (*decode)(const std::byte* data, std::int64_t blocks, float* values);
};

struct GgufTensor {
  std::string name;
  const GgufBlockType* type = nullptr;
  std::vector<std::int64_t>
      shape;  // rows first, [out, in]: the file lists them the other way round
  std::span<const std::byte> data;  // in the mapped file

  std::int64_t count() const;
};

class GgufFile {
 public:
  // Maps the file and checks the whole header. Throws InputError naming file, key, tensor or
  // offset, what was expected and what was found.
  explicit GgufFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t size() const { return file_.size(); }

  // In the order of the file.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;  // null: not there
  const GgufTensor& at(std::string_view name) const;    // throws InputError when it is missing

  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // Each throws InputError naming file and key when it is missing, or naming both types when it has
  // another. Integers and numbers are accepted in every width.
  std::string string(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  // finite
  bool boolean(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::int64_t array_size(std::string_view key) const;

  // Elements [begin, begin + count) of a tensor as FP32; both must be multiples of its block size.
  // Throws InputError naming tensor and type when Reprise does not read the type.
  void read_floats(const GgufTensor& tensor, std::int64_t begin, std::int64_t count,
                   float* values) const;

  // Lets the pages of a tensor go that has been used up.
  void drop(const GgufTensor& tensor) const { file_.drop(tensor.data); }

 private:
  const GgufValue& value(std::string_view key) const;
  [[noreturn]] void refuse_type(std::string_view key, const GgufValue& value,
                                const char* expected) const;

  MappedFile file_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, std::size_t> by_name_;  // keys point into tensors_
};

}  // namespace reprise
