// Metadata of a GGUF file by key, with the type checked.
#include <cstring>

#include "reprise/kernels/error.h"
#include "reprise/runtime/gguf.h"
#include "reprise/runtime/quoted.h"
#include "runtime/io/checked.h"
#include "runtime/io/gguf_parse.h"

namespace reprise {
namespace {

template <class T>
T number_at(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool is_integer(GgufValueType type) {
  return type != GgufValueType::kF32 && type != GgufValueType::kF64 &&
         type != GgufValueType::kBool && type != GgufValueType::kString &&
         type != GgufValueType::kArray;
}

std::int64_t integer_at(const std::byte* bytes, GgufValueType type, std::string_view where) {
  switch (type) {
    case GgufValueType::kU8:
      return number_at<std::uint8_t>(bytes);
    case GgufValueType::kI8:
      return number_at<std::int8_t>(bytes);
    case GgufValueType::kU16:
      return number_at<std::uint16_t>(bytes);
    case GgufValueType::kI16:
      return number_at<std::int16_t>(bytes);
    case GgufValueType::kU32:
      return number_at<std::uint32_t>(bytes);
    case GgufValueType::kI32:
      return number_at<std::int32_t>(bytes);
    case GgufValueType::kU64:
      return checked_size(number_at<std::uint64_t>(bytes), where);
    default:
      return number_at<std::int64_t>(bytes);
  }
}

}  // namespace

std::int64_t GgufTensor::count() const {
  std::int64_t count = 1;  // opening the file has checked the product
  for (const std::int64_t size : dims) count *= size;
  return count;
}

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  GgufContents contents = parse_gguf(file_.bytes(), in_quotes(path));
  version_ = contents.version;
  values_ = std::move(contents.values);
  tensors_ = std::move(contents.tensors);
  by_name_ = std::move(contents.by_name);
}

const GgufValue& GgufFile::value(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    throw InputError(in_quotes(path()) + ": key " + in_quotes(key) + " is missing");
  }
  return found->second;
}

void GgufFile::wrong_type(std::string_view key, const GgufValue& value,
                          std::string_view expected) const {
  std::string found = name_of(value.type);
  if (value.type == GgufValueType::kArray) found += std::string(" of ") + name_of(value.element);
  throw InputError(in_quotes(path()) + ": key " + in_quotes(key) + " is " + found + ", expected " +
                   std::string(expected));
}

std::int64_t GgufFile::integer(std::string_view key) const {
  const GgufValue& found = value(key);
  if (!is_integer(found.type)) wrong_type(key, found, "an integer");
  return integer_at(found.bytes.data(), found.type, in_quotes(path()) + ": key " + in_quotes(key));
}

double GgufFile::number(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type == GgufValueType::kF32) return number_at<float>(found.bytes.data());
  if (found.type != GgufValueType::kF64) wrong_type(key, found, "f32 or f64");
  return number_at<double>(found.bytes.data());
}

bool GgufFile::boolean(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kBool) wrong_type(key, found, "bool");
  return found.bytes[0] != std::byte{0};
}

std::string_view GgufFile::string(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kString) wrong_type(key, found, "string");
  return {reinterpret_cast<const char*>(found.bytes.data()) + 8, found.bytes.size() - 8};
}

std::vector<std::string_view> GgufFile::strings(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kArray || found.element != GgufValueType::kString) {
    wrong_type(key, found, "array of string");
  }
  std::vector<std::string_view> result;
  const std::byte* bytes = found.bytes.data();
  for (std::int64_t i = 0; i < found.count; ++i) {
    const auto length = static_cast<std::size_t>(number_at<std::uint64_t>(bytes));
    result.emplace_back(reinterpret_cast<const char*>(bytes) + 8, length);
    bytes += 8 + length;
  }
  return result;
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kArray || !is_integer(found.element)) {
    wrong_type(key, found, "array of integers");
  }
  const std::string where = in_quotes(path()) + ": key " + in_quotes(key);
  std::vector<std::int64_t> result;
  const std::size_t size =
      found.count == 0 ? 0 : found.bytes.size() / static_cast<std::size_t>(found.count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(found.count); ++i) {
    result.push_back(integer_at(found.bytes.data() + i * size, found.element, where));
  }
  return result;
}

std::vector<float> GgufFile::floats(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kArray || found.element != GgufValueType::kF32) {
    wrong_type(key, found, "array of f32");
  }
  std::vector<float> result(static_cast<std::size_t>(found.count));
  if (!result.empty()) std::memcpy(result.data(), found.bytes.data(), found.bytes.size());
  return result;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::at(std::string_view name) const {
  if (const GgufTensor* tensor = find(name)) return *tensor;
  throw InputError(in_quotes(path()) + ": tensor " + in_quotes(name) + " is missing");
}

}  // namespace reprise
