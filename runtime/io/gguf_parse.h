// What a GGUF file says about itself, checked against its size.
#pragma once

#include <span>
#include <string>

#include "reprise/runtime/gguf.h"

namespace reprise {

struct GgufContents {
  std::uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<GgufTensor> tensors;
  std::map<std::string, std::size_t, std::less<>> by_name;
};

// `where` begins every message: the file's name. The result points into `bytes`.
GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& where);

}  // namespace reprise
