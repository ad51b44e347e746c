// The header of a GGUF file, from memory.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reprise/runtime/gguf.h"

namespace reprise {

struct GgufHeader {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // no name twice
};

// `file`: all of its bytes; values and tensors refer to them. `where`: in front of every message.
GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& where);

const char* name_of(GgufValueType type);  // "u32"; "?" for numbers that are no type
// 0 for strings, arrays and numbers that are no type.
std::int64_t size_of(GgufValueType type);

// Null for a number that is no type of the format.
const GgufBlockType* find_gguf_type(std::uint32_t id);
// "F32, F16, ...": the types that can be read.
std::string readable_gguf_types();

}  // namespace reprise
