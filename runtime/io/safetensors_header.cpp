// Checks a safetensors header in the reference implementation's order: length, UTF-8 and JSON, each
// tensor, then that the tensors tile the data without hole, overlap or rest.
#include <algorithm>
#include <array>
#include <cstring>

#include "reprise/runtime/quoted.h"
#include "runtime/io/checked.h"
#include "runtime/io/safetensors_format.h"
#include "runtime/io/strict_json.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;

struct FormatType {
  std::string_view name;
  std::int64_t bits;
};
constexpr std::array<FormatType, 22> kTypes = {{
    {"F32", 32},    {"BF16", 16},   {"F16", 16},        {"I64", 64},        {"I32", 32},
    {"U8", 8},      {"BOOL", 8},    {"I8", 8},          {"I16", 16},        {"U16", 16},
    {"U32", 32},    {"U64", 64},    {"F64", 64},        {"C64", 64},        {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
}};

// The JSON of the header, its length checked.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& where) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs")) {
    throw InputError(where + ": is a git-LFS pointer, not the file itself; run git lfs pull");
  }
  if (size < kLengthBytes) {
    throw InputError(where + ": " + std::to_string(size) +
                     " bytes are too few for a safetensors file");
  }
  std::uint64_t stored = 0;  // little-endian, like every machine that Reprise runs on
  std::memcpy(&stored, bytes.data(), sizeof stored);
  if (stored > static_cast<std::uint64_t>(kMaxSafetensorsHeader)) {
    throw InputError(where + ": header of " + std::to_string(stored) + " bytes, the limit is " +
                     std::to_string(kMaxSafetensorsHeader) + "; is this a safetensors file?");
  }
  const auto length = static_cast<std::int64_t>(stored);
  if (length > size - kLengthBytes) {
    throw InputError(where + ": header of " + std::to_string(length) + " bytes in a file of " +
                     std::to_string(size) + "; the file is cut off or no safetensors file");
  }
  return text.substr(kLengthBytes, static_cast<std::size_t>(length));
}

// Offsets as the header says them: from the start of the data.
struct Located {
  SafetensorsTensor tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Located read_entry(const std::string& name, const json& entry, const std::string& file) {
  const std::string where = file + ": tensor " + in_quotes(name);
  if (!entry.is_object()) throw InputError(where + ": expected a JSON object");
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      throw InputError(where + ": unknown key " + in_quotes(key));
    }
  }
  Located located;
  SafetensorsTensor& tensor = located.tensor;
  tensor.name = name;
  tensor.dtype_name = json_string(entry, "dtype", where);
  tensor.dtype = safetensors_dtype(tensor.dtype_name);
  const json& shape = json_member(entry, "shape", where);
  if (!shape.is_array()) throw InputError(where + ": \"shape\" must be an array");
  for (const json& size : shape) tensor.shape.push_back(json_size(size, where + ": a dimension"));
  const json& offsets = json_member(entry, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2) {
    throw InputError(where + ": \"data_offsets\" must be two integers");
  }
  located.begin = json_size(offsets[0], where + ": data_offsets[0]");
  located.end = json_size(offsets[1], where + ": data_offsets[1]");
  if (located.end < located.begin) {
    throw InputError(where + ": data_offsets [" + std::to_string(located.begin) + ", " +
                     std::to_string(located.end) + "] end before they begin");
  }
  const std::int64_t bytes = safetensors_bytes(tensor.dtype_name, tensor.shape, where);
  if (bytes != located.end - located.begin) {
    throw InputError(where + ": " + tensor.dtype_name + " " + to_string(tensor.shape) + " has " +
                     std::to_string(bytes) + " bytes, but data_offsets [" +
                     std::to_string(located.begin) + ", " + std::to_string(located.end) +
                     "] span " + std::to_string(located.end - located.begin));
  }
  return located;
}

void read_metadata(const json& entry, const std::string& where,
                   std::map<std::string, std::string>& metadata) {
  if (!entry.is_object()) throw InputError(where + ": \"__metadata__\" must be a JSON object");
  for (const auto& [key, value] : entry.items()) {
    metadata[key] = json_string(entry, key.c_str(), where + ": \"__metadata__\"");
  }
}

// Sorted by place, each tensor must begin where the one before ends, and the last at the file's
// end.
void require_tiling(const std::vector<Located>& located, std::int64_t data_bytes,
                    const std::string& where) {
  std::int64_t position = 0;
  for (const Located& item : located) {
    if (item.begin != position) {
      throw InputError(
          where + ": tensor " + in_quotes(item.tensor.name) + " begins at offset " +
          std::to_string(item.begin) + " of the data, expected " + std::to_string(position) +
          (item.begin < position ? ": it overlaps the one before" : ": there is a hole before it"));
    }
    if (item.end > data_bytes) {
      throw InputError(where + ": tensor " + in_quotes(item.tensor.name) + " ends at offset " +
                       std::to_string(item.end) + " of the data, but the file has " +
                       std::to_string(data_bytes) + " bytes of data; is it cut off?");
    }
    position = item.end;
  }
  if (position != data_bytes) {
    throw InputError(where + ": " + std::to_string(data_bytes - position) +
                     " bytes after the last tensor belong to none");
  }
}

}  // namespace

std::optional<std::int64_t> safetensors_bits(std::string_view dtype_name) {
  for (const FormatType& type : kTypes) {
    if (type.name == dtype_name) return type.bits;
  }
  return std::nullopt;
}

std::optional<DType> safetensors_dtype(std::string_view dtype_name) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8}) {
    if (dtype_name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

std::int64_t safetensors_bytes(std::string_view dtype_name, const std::vector<std::int64_t>& shape,
                               const std::string& where) {
  const auto bits_each = safetensors_bits(dtype_name);
  if (!bits_each) throw InputError(where + ": unknown dtype " + in_quotes(dtype_name));
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count = checked_mul(count, size, where);
  const std::int64_t bits = checked_mul(count, *bits_each, where);
  if (bits % 8 != 0) {
    throw InputError(where + ": " + std::string(dtype_name) + " " + to_string(shape) +
                     " ends inside a byte");
  }
  return bits / 8;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes,
                                           const std::string& where) {
  const std::string_view text = header_text(bytes, where);
  // A tensor takes about eight values and 90 bytes of JSON, so that size is the tighter limit.
  const JsonLimits limits{kMaxSafetensorsHeader, 8, 16 << 20};
  const json header = parse_strict_json(text, where + ": header", limits);
  if (!header.is_object()) throw InputError(where + ": the header must be a JSON object");

  SafetensorsHeader result;
  std::vector<Located> located;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      read_metadata(entry, where, result.metadata);
    } else {
      located.push_back(read_entry(name, entry, where));
    }
  }
  // An empty tensor sorts before the one that begins at the same place.
  std::sort(located.begin(), located.end(), [](const Located& a, const Located& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(text.size());
  require_tiling(located, static_cast<std::int64_t>(bytes.size()) - data_begin, where);
  for (Located& item : located) {
    item.tensor.offset = data_begin + item.begin;
    item.tensor.data = bytes.subspan(static_cast<std::size_t>(item.tensor.offset),
                                     static_cast<std::size_t>(item.end - item.begin));
    result.tensors.push_back(std::move(item.tensor));
  }
  return result;
}

}  // namespace reprise
