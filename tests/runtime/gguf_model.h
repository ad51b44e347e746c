// A small model as a GGUF file in parts, so that a test can change one of them and write the rest
// as it was.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/random.h"

namespace reprise::test {

// Tensor types by their numbers in the file.
inline constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kBF16 = 30;

// Bytes of a tensor type, and the values that its published formula gives them. Scales and quants
// are drawn so that every product and sum is exact in FP32.
struct EncodedValues {
  std::string bytes;
  std::vector<float> values;
};
EncodedValues encode(std::uint32_t type, std::int64_t count, Random& random);

struct GgufModel {
  struct Key {
    std::string name;
    std::uint32_t type;
    std::string value;
  };
  struct Tensor {
    std::string name;
    std::uint32_t type;
    std::vector<std::int64_t> dims;  // dims[0] fastest
    std::string data;
    std::vector<float> values;
    std::int64_t moved = 0;  // added to the offset that is written
  };
  std::vector<Key> keys;
  std::vector<Tensor> tensors;
  // What the header says beyond the number of keys and tensors that there are.
  std::uint64_t more_keys = 0, more_tensors = 0;

  Key& key(std::string_view name);
  Tensor& tensor(std::string_view name);
  void set_u32(std::string_view name, std::uint32_t value);  // added if it is not there
  void set_f32(std::string_view name, float value);
  void set_string(std::string_view name, std::string_view value);
  void erase_key(std::string_view name);
  void erase_tensor(std::string_view name);

  // `borders`: where each part of the file begins.
  std::string image(std::vector<std::size_t>* borders = nullptr) const;
};

struct GgufShape {
  std::string architecture = "llama";
  std::uint32_t type = kF32;  // of the projections
  std::uint32_t table_type = kF32;
  std::int64_t hidden = 64, feed_forward = 96, heads = 4, kv_heads = 2, head_dim = 32, vocab = 7;
  std::int64_t layers = 1;
  bool own_head = false;  // output.weight is there
};
GgufModel make_gguf_model(const GgufShape& shape, Random& random);

}  // namespace reprise::test
