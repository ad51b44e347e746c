#include <cmath>
#include <cstring>
#include <optional>

#include "reprise/kernels/error.h"
#include "runtime/io/checked.h"
#include "runtime/io/gguf_format.h"
#include "runtime/io/quoted.h"

namespace reprise {
namespace {

template <class T>
T load(std::span<const std::byte> data) {
  T value;
  std::memcpy(&value, data.data(), sizeof value);
  return value;
}

// Nothing for types that are no integers, and for numbers of 2^63 or more.
std::optional<std::int64_t> load_integer(GgufValueType type, std::span<const std::byte> data) {
  switch (type) {
    case GgufValueType::kU8:
      return load<std::uint8_t>(data);
    case GgufValueType::kI8:
      return load<std::int8_t>(data);
    case GgufValueType::kU16:
      return load<std::uint16_t>(data);
    case GgufValueType::kI16:
      return load<std::int16_t>(data);
    case GgufValueType::kU32:
      return load<std::uint32_t>(data);
    case GgufValueType::kI32:
      return load<std::int32_t>(data);
    case GgufValueType::kI64:
      return load<std::int64_t>(data);
    case GgufValueType::kU64: {
      const auto value = load<std::uint64_t>(data);
      if (value <= static_cast<std::uint64_t>(INT64_MAX)) return static_cast<std::int64_t>(value);
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::string type_text(const GgufValue& value) {
  return value.type == GgufValueType::kArray ? std::string("an array of ") + name_of(value.element)
                                             : name_of(value.type);
}

// The string at the front of `data`, which the parser has checked; `data` moves behind it.
std::string take_string(std::span<const std::byte>& data) {
  const auto length = static_cast<std::size_t>(load<std::uint64_t>(data));
  const std::string text(reinterpret_cast<const char*>(data.data()) + 8, length);
  data = data.subspan(8 + length);
  return text;
}

}  // namespace

std::int64_t GgufTensor::count() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  GgufHeader header = parse_gguf_header(file_.bytes(), in_quotes(path));
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::at(std::string_view name) const {
  if (const GgufTensor* tensor = find(name)) return *tensor;
  throw InputError(in_quotes(path()) + ": tensor " + in_quotes(name) + " is missing");
}

const GgufValue& GgufFile::value(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end()) return found->second;
  throw InputError(in_quotes(path()) + ": metadata key " + std::string(key) + " is missing");
}

void GgufFile::refuse_type(std::string_view key, const GgufValue& value,
                           const char* expected) const {
  throw InputError(in_quotes(path()) + ": " + std::string(key) + " is " + type_text(value) +
                   ", expected " + expected);
}

std::string GgufFile::string(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kString) refuse_type(key, found, "a string");
  std::span<const std::byte> data = found.data;
  return take_string(data);
}

std::int64_t GgufFile::integer(std::string_view key) const {
  const GgufValue& found = value(key);
  if (const auto number = load_integer(found.type, found.data)) return *number;
  refuse_type(key, found, "an integer below 2^63");
}

double GgufFile::number(std::string_view key) const {
  const GgufValue& found = value(key);
  double number = 0;
  if (found.type == GgufValueType::kF32) {
    number = static_cast<double>(load<float>(found.data));
  } else if (found.type == GgufValueType::kF64) {
    number = load<double>(found.data);
  } else if (const auto whole = load_integer(found.type, found.data)) {
    number = static_cast<double>(*whole);
  } else {
    refuse_type(key, found, "a number");
  }
  if (std::isfinite(number)) return number;
  throw InputError(in_quotes(path()) + ": " + std::string(key) + " is not a finite number");
}

bool GgufFile::boolean(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kBool) refuse_type(key, found, "a bool");
  const auto byte = load<std::uint8_t>(found.data);
  if (byte <= 1) return byte == 1;
  throw InputError(in_quotes(path()) + ": " + std::string(key) + " is " + std::to_string(byte) +
                   ", expected 0 or 1");
}

std::vector<std::string> GgufFile::strings(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kArray || found.element != GgufValueType::kString) {
    refuse_type(key, found, "an array of strings");
  }
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(found.count));
  std::span<const std::byte> data = found.data;
  for (std::int64_t i = 0; i < found.count; ++i) texts.push_back(take_string(data));
  return texts;
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kArray) refuse_type(key, found, "an array of integers");
  const auto step = static_cast<std::size_t>(size_of(found.element));
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < static_cast<std::size_t>(found.count); ++i) {
    const auto number = load_integer(found.element, found.data.subspan(i * step));
    if (!number) refuse_type(key, found, "an array of integers below 2^63");
    numbers.push_back(*number);
  }
  return numbers;
}

std::int64_t GgufFile::array_size(std::string_view key) const {
  const GgufValue& found = value(key);
  if (found.type != GgufValueType::kArray) refuse_type(key, found, "an array");
  return found.count;
}

void GgufFile::read_floats(const GgufTensor& tensor, std::int64_t begin, std::int64_t count,
                           float* values) const {
  const GgufBlockType& type = *tensor.type;
  if (type.decode == nullptr) {
    throw InputError(in_quotes(path()) + ": tensor " + in_quotes(tensor.name) + " is " + type.name +
                     ", which Reprise does not read; it reads " + readable_gguf_types());
  }
  require(begin >= 0 && count >= 0 && begin <= tensor.count() && count <= tensor.count() - begin &&
              begin % type.block_size == 0 && count % type.block_size == 0,
          "GgufFile::read_floats: a range of whole blocks inside the tensor is needed");
  const std::byte* data = tensor.data.data() + begin / type.block_size * type.block_bytes;
  type.decode(data, count / type.block_size, values);
}

}  // namespace reprise
