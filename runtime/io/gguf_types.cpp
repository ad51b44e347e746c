// Tensor types of GGUF: sizes of all of them, decoders of those that Reprise reads.
// Source: block layouts and type numbers of ggml (ggml.h, ggml-common.h). Scales are binary16.
#include <array>
#include <cstring>

#include "reprise/kernels/float16.h"
#include "runtime/io/gguf_format.h"

namespace reprise {
namespace {

template <class T>
T load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

float load_half(const std::byte* data) { return to_float(load<Float16>(data)); }

void decode_f32(const std::byte* data, std::int64_t blocks, float* values) {
  std::memcpy(values, data, static_cast<std::size_t>(blocks) * sizeof(float));
}

template <class Half>
void decode_half(const std::byte* data, std::int64_t blocks, float* values) {
  for (std::int64_t i = 0; i < blocks; ++i) values[i] = to_float(load<Half>(data + 2 * i));
}

constexpr std::int64_t kBlock = 32;

// Q8_0: a scale, then 32 signed bytes.
void decode_q8_0(const std::byte* data, std::int64_t blocks, float* values) {
  for (; blocks > 0; --blocks, data += 2 + kBlock, values += kBlock) {
    const float scale = load_half(data);
    for (std::int64_t i = 0; i < kBlock; ++i) {
      values[i] = scale * static_cast<float>(static_cast<std::int8_t>(data[2 + i]));
    }
  }
}

// 32 unsigned nibbles in 16 bytes: the low halves are the first 16 elements, the high ones the
// rest.
void decode_nibbles(const std::byte* data, float scale, float minimum, float* values) {
  for (std::int64_t i = 0; i < kBlock / 2; ++i) {
    const auto byte = static_cast<unsigned>(data[i]);
    values[i] = static_cast<float>(byte & 15) * scale + minimum;
    values[i + kBlock / 2] = static_cast<float>(byte >> 4) * scale + minimum;
  }
}

// Q4_0: a scale, then nibbles that stand for -8 ... 7. One product: the offset is exact.
void decode_q4_0(const std::byte* data, std::int64_t blocks, float* values) {
  for (; blocks > 0; --blocks, data += 2 + kBlock / 2, values += kBlock) {
    decode_nibbles(data + 2, 1.0f, -8.0f, values);
    const float scale = load_half(data);
    for (std::int64_t i = 0; i < kBlock; ++i) values[i] *= scale;
  }
}

// Q4_1: a scale and a minimum, then nibbles that stand for 0 ... 15.
void decode_q4_1(const std::byte* data, std::int64_t blocks, float* values) {
  for (; blocks > 0; --blocks, data += 4 + kBlock / 2, values += kBlock) {
    decode_nibbles(data + 4, load_half(data), load_half(data + 2), values);
  }
}

// Numbers that are missing were given up by ggml.
constexpr GgufBlockType kTypes[] = {
    {0, "F32", 1, 4, decode_f32},
    {1, "F16", 1, 2, decode_half<Float16>},
    {2, "Q4_0", 32, 18, decode_q4_0},
    {3, "Q4_1", 32, 20, decode_q4_1},
    {6, "Q5_0", 32, 22, nullptr},
    {7, "Q5_1", 32, 24, nullptr},
    {8, "Q8_0", 32, 34, decode_q8_0},
    {9, "Q8_1", 32, 36, nullptr},
    {10, "Q2_K", 256, 84, nullptr},
    {11, "Q3_K", 256, 110, nullptr},
    {12, "Q4_K", 256, 144, nullptr},
    {13, "Q5_K", 256, 176, nullptr},
    {14, "Q6_K", 256, 210, nullptr},
    {15, "Q8_K", 256, 292, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr},
    {17, "IQ2_XS", 256, 74, nullptr},
    {18, "IQ3_XXS", 256, 98, nullptr},
    {19, "IQ1_S", 256, 50, nullptr},
    {20, "IQ4_NL", 32, 18, nullptr},
    {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},
    {23, "IQ4_XS", 256, 136, nullptr},
    {24, "I8", 1, 1, nullptr},
    {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},
    {27, "I64", 1, 8, nullptr},
    {28, "F64", 1, 8, nullptr},
    {29, "IQ1_M", 256, 56, nullptr},
    {30, "BF16", 1, 2, decode_half<BFloat16>},
    {34, "TQ1_0", 256, 54, nullptr},
    {35, "TQ2_0", 256, 66, nullptr},
    {39, "MXFP4", 32, 17, nullptr},
};

}  // namespace

const GgufBlockType* find_gguf_type(std::uint32_t id) {
  for (const GgufBlockType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

std::string readable_gguf_types() {
  std::string names;
  for (const GgufBlockType& type : kTypes) {
    if (type.decode != nullptr) names += (names.empty() ? "" : ", ") + std::string(type.name);
  }
  return names;
}

const char* name_of(GgufValueType type) {
  static constexpr std::array kNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<std::size_t>(type);
  return i < kNames.size() ? kNames[i] : "?";
}

std::int64_t size_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

}  // namespace reprise
