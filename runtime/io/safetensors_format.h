// What reader and writer of safetensors share: element types, and the header as data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/runtime/safetensors.h"

namespace reprise {

// The limit of the reference implementation. Larger headers exist (over a million tensors) and no
// other program reads them either.
inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;

// Bits of one element; nothing for a name that is not in the format.
std::optional<std::int64_t> safetensors_bits(std::string_view dtype_name);
// The type that Reprise computes in; nothing for the others.
std::optional<DType> safetensors_dtype(std::string_view dtype_name);

// Bytes of a tensor. Throws InputError starting with `where` when the type is unknown, the product
// overflows, or the tensor ends inside a byte.
std::int64_t safetensors_bytes(std::string_view dtype_name, const std::vector<std::int64_t>& shape,
                               const std::string& where);

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};
// `bytes` is the whole file; nothing outside of it is touched. `where` is the quoted path.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes,
                                           const std::string& where);

// The order in which entries are written, and the file's first bytes: length, JSON, padding.
struct SafetensorsPlan {
  std::vector<std::size_t> order;
  std::vector<std::int64_t> sizes;  // by entry
  std::string head;
  std::int64_t total_bytes = 0;  // of the file
};
SafetensorsPlan plan_safetensors(const std::vector<SafetensorsEntry>& entries,
                                 const SafetensorsMetadata& metadata);

}  // namespace reprise
