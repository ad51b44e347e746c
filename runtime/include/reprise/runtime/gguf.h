// GGUF files, versions 2 and 3, little-endian: metadata and tensors of a mapped file. Opening
// checks everything that the file says about itself; nothing is allocated by a size that the bytes
// left in the file do not bear out. Throws InputError naming the file and the key or tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/runtime/mapped_file.h"

namespace reprise {

// Numbers as in the file.
enum class GgufValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
const char* name_of(GgufValueType type);

// A value where it lies in the file: `count` elements of `element`; one when it is no array.
// Strings keep their length in front.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element = GgufValueType::kU8;
  std::int64_t count = 1;
  std::span<const std::byte> bytes;
};

struct GgufTensor {
  std::string name;
  std::uint32_t type = 0;
  std::string type_name;           // "Q4_1"
  std::vector<std::int64_t> dims;  // dims[0] varies fastest: [columns, rows] of a matrix
  std::int64_t offset = 0;         // in the file
  std::span<const std::byte> data;

  std::int64_t count() const;
};

class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::uint32_t version() const { return version_; }

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  // Each throws when the key is absent or of another type. Any integer type is an integer and any
  // float type is a number; an integer above 2^63 - 1 is refused.
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string_view string(std::string_view key) const;
  std::vector<std::string_view> strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<float> floats(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;  // null: there is none
  const GgufTensor& at(std::string_view name) const;

  // Says that the tensor has been used up: its pages leave this process's memory.
  void drop(const GgufTensor& tensor) const { file_.drop(tensor.data); }

 private:
  [[noreturn]] void wrong_type(std::string_view key, const GgufValue& value,
                               std::string_view expected) const;
  const GgufValue& value(std::string_view key) const;

  MappedFile file_;
  std::uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// Throws InputError, naming the tensor, its type and the types that can be read, unless
// dequantize_gguf can read it.
void require_readable(const GgufFile& file, const GgufTensor& tensor);

// Elements [begin, begin + count) as FP32. Both must be multiples of the type's block (32 or 1) and
// inside the tensor, which require_readable has accepted: it does not throw, so that pool threads
// can call it.
void dequantize_gguf(const GgufTensor& tensor, std::int64_t begin, std::int64_t count, float* out);

}  // namespace reprise
