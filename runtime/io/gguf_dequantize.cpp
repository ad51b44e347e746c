// GGUF's tensor types and their values as FP32. Blocks lie at any address, so every number is
// copied out byte by byte.
#include <array>
#include <cstring>

#include "reprise/kernels/error.h"
#include "reprise/kernels/float16.h"
#include "reprise/runtime/gguf.h"
#include "reprise/runtime/quoted.h"
#include "runtime/io/gguf_types.h"

namespace reprise {
namespace {

constexpr std::array<GgufType, 20> kTypes = {{
    {kGgufF32, "F32", 1, 4, true},     {kGgufF16, "F16", 1, 2, true},
    {kGgufQ4_0, "Q4_0", 32, 18, true}, {kGgufQ4_1, "Q4_1", 32, 20, true},
    {6, "Q5_0", 32, 22, false},        {7, "Q5_1", 32, 24, false},
    {kGgufQ8_0, "Q8_0", 32, 34, true}, {9, "Q8_1", 32, 36, false},
    {10, "Q2_K", 256, 84, false},      {11, "Q3_K", 256, 110, false},
    {12, "Q4_K", 256, 144, false},     {13, "Q5_K", 256, 176, false},
    {14, "Q6_K", 256, 210, false},     {24, "I8", 1, 1, false},
    {25, "I16", 1, 2, false},          {26, "I32", 1, 4, false},
    {27, "I64", 1, 8, false},          {28, "F64", 1, 8, false},
    {kGgufBF16, "BF16", 1, 2, true},   {15, "Q8_K", 256, 292, false},
}};

constexpr std::int64_t kBlock = 32;  // elements of a Q4_0, Q4_1 or Q8_0 block

float half_at(const std::byte* bytes) {
  Float16 value;
  std::memcpy(&value, bytes, sizeof value);
  return to_float(value);
}

// Element i of a 4-bit block is in the low half of byte i, element i + 16 in its high half.
void read_q4(const std::byte* nibbles, float scale, float offset, float* out) {
  for (int i = 0; i < kBlock / 2; ++i) {
    const int byte = std::to_integer<int>(nibbles[i]);
    out[i] = scale * static_cast<float>(byte & 15) + offset;
    out[i + kBlock / 2] = scale * static_cast<float>(byte >> 4) + offset;
  }
}

void read_q4_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  read_q4(block + 2, scale, -8 * scale, out);
}

void read_q4_1(const std::byte* block, float* out) {
  read_q4(block + 4, half_at(block), half_at(block + 2), out);
}

void read_q8_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < kBlock; ++i) {
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

void read_f16(const std::byte* bytes, float* out) { *out = half_at(bytes); }

void read_bf16(const std::byte* bytes, float* out) {
  BFloat16 value;
  std::memcpy(&value, bytes, sizeof value);
  *out = to_float(value);
}

using ReadBlock = void (*)(const std::byte* block, float* out);

ReadBlock block_reader(std::uint32_t type) {
  switch (type) {
    case kGgufF16:
      return read_f16;
    case kGgufBF16:
      return read_bf16;
    case kGgufQ4_0:
      return read_q4_0;
    case kGgufQ4_1:
      return read_q4_1;
    default:
      return read_q8_0;
  }
}

}  // namespace

const GgufType* find_gguf_type(std::uint32_t id) {
  for (const GgufType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

void require_readable(const GgufFile& file, const GgufTensor& tensor) {
  const GgufType* type = find_gguf_type(tensor.type);
  if (type != nullptr && type->readable) return;
  std::string known;
  for (const GgufType& candidate : kTypes) {
    if (candidate.readable) known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  }
  throw InputError(in_quotes(file.path()) + ": tensor " + in_quotes(tensor.name) + " is " +
                   tensor.type_name + ", which is not supported; supported: " + known);
}

void dequantize_gguf(const GgufTensor& tensor, std::int64_t begin, std::int64_t count, float* out) {
  const GgufType* type = find_gguf_type(tensor.type);
  const std::byte* bytes = tensor.data.data() + begin / type->block_elements * type->block_bytes;
  if (tensor.type == kGgufF32) {
    std::memcpy(out, bytes, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const ReadBlock read = block_reader(tensor.type);
  for (std::int64_t i = 0; i < count; i += type->block_elements) {
    read(bytes, out + i);
    bytes += type->block_bytes;
  }
}

}  // namespace reprise
