// Types of tensors in GGUF files: name, block and bytes, by the number that stands in the file.
#pragma once

#include <cstdint>

namespace reprise {

struct GgufType {
  std::uint32_t id;
  const char* name;
  std::int64_t block_elements;
  std::int64_t block_bytes;
  bool readable;  // dequantize_gguf knows it
};

inline constexpr std::uint32_t kGgufF32 = 0, kGgufF16 = 1, kGgufQ4_0 = 2, kGgufQ4_1 = 3,
                               kGgufQ8_0 = 8, kGgufBF16 = 30;

const GgufType* find_gguf_type(std::uint32_t id);  // null: not known

}  // namespace reprise
