#include "tests/runtime/gguf_model.h"

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "tests/support/gguf_writer.h"

namespace reprise::test {
namespace {

constexpr std::size_t kAlignment = 32;

// binary16 of a number that it holds exactly, by its definition: (1 + m / 1024) * 2^(e - 15).
std::string half_bytes(float value) {
  if (value == 0) return std::string(2, '\0');
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const float mantissa = (fraction * 2 - 1) * 1024;
  BOOST_REQUIRE(mantissa == std::floor(mantissa));
  BOOST_REQUIRE((exponent > -14 && exponent <= 16));
  const auto bits =
      static_cast<std::uint32_t>(exponent + 14) << 10 | static_cast<std::uint32_t>(mantissa);
  return bytes_of(static_cast<std::uint16_t>(value < 0 ? bits | 0x8000u : bits));
}

float exact(Random& random, std::int64_t largest, float unit) {
  return static_cast<float>(random.between(-largest, largest)) * unit;
}

void add_plain(std::uint32_t type, Random& random, EncodedValues& out) {
  if (type == kF32) {
    const float value = static_cast<float>(random.normal());
    out.values.push_back(value);
    out.bytes += bytes_of(value);
  } else if (type == kF16) {
    out.values.push_back(exact(random, 1023, 0x1p-9F));
    out.bytes += half_bytes(out.values.back());
  } else {  // bf16: the upper half of a number of at most 8 significant bits
    out.values.push_back(exact(random, 255, 0x1p-7F));
    const auto bits = std::bit_cast<std::uint32_t>(out.values.back());
    BOOST_REQUIRE((bits & 0xffffU) == 0);
    out.bytes += bytes_of(static_cast<std::uint16_t>(bits >> 16));
  }
}

void add_block(std::uint32_t type, Random& random, EncodedValues& out) {
  const float scale = exact(random, 127, 0x1p-10F), offset = exact(random, 127, 0x1p-7F);
  out.bytes += half_bytes(scale);
  if (type == kQ4_1) out.bytes += half_bytes(offset);
  if (type == kQ8_0) {
    for (int i = 0; i < 32; ++i) {
      const std::int64_t quant = random.between(-128, 127);
      out.bytes += static_cast<char>(quant);
      out.values.push_back(scale * static_cast<float>(quant));
    }
    return;
  }
  std::vector<float> upper;
  for (int i = 0; i < 16; ++i) {  // element i in the low half of byte i, i + 16 in the high half
    const std::int64_t low = random.between(0, 15), high = random.between(0, 15);
    out.bytes += static_cast<char>(high << 4 | low);
    const auto value = [&](std::int64_t quant) {
      return type == kQ4_1 ? scale * static_cast<float>(quant) + offset
                           : scale * static_cast<float>(quant - 8);
    };
    out.values.push_back(value(low));
    upper.push_back(value(high));
  }
  out.values.insert(out.values.end(), upper.begin(), upper.end());
}

}  // namespace

EncodedValues encode(std::uint32_t type, std::int64_t count, Random& random) {
  EncodedValues out;
  const bool plain = type == kF32 || type == kF16 || type == kBF16;
  while (static_cast<std::int64_t>(out.values.size()) < count) {
    plain ? add_plain(type, random, out) : add_block(type, random, out);
  }
  BOOST_REQUIRE(static_cast<std::int64_t>(out.values.size()) == count);
  return out;
}

GgufModel::Key& GgufModel::key(std::string_view name) {
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const Key& candidate) { return candidate.name == name; });
  if (found != keys.end()) return *found;
  return keys.emplace_back(std::string(name), 0, "");
}

GgufModel::Tensor& GgufModel::tensor(std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Tensor& candidate) { return candidate.name == name; });
  BOOST_REQUIRE(found != tensors.end());
  return *found;
}

void GgufModel::set_u32(std::string_view name, std::uint32_t value) {
  key(name) = {std::string(name), 4, bytes_of(value)};
}
void GgufModel::set_f32(std::string_view name, float value) {
  key(name) = {std::string(name), 6, bytes_of(value)};
}
void GgufModel::set_string(std::string_view name, std::string_view value) {
  key(name) = {std::string(name), 8, gguf_string(value)};
}

void GgufModel::erase_key(std::string_view name) {
  BOOST_REQUIRE(std::erase_if(keys, [&](const Key& key) { return key.name == name; }) == 1);
}
void GgufModel::erase_tensor(std::string_view name) {
  BOOST_REQUIRE(std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; }) == 1);
}

std::string GgufModel::image(std::vector<std::size_t>* borders) const {
  std::string image = "GGUF";
  const auto part = [&](std::string_view bytes) {
    if (borders != nullptr) borders->push_back(image.size());
    image.append(bytes);
  };
  const auto align = [](std::size_t size) {
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  };
  part(bytes_of(3U));
  part(bytes_of(tensors.size() + more_tensors));
  part(bytes_of(keys.size() + more_keys));
  for (const Key& key : keys) {
    part(gguf_string(key.name));
    part(bytes_of(key.type));
    part(key.value);
  }
  std::size_t offset = 0;
  for (const Tensor& tensor : tensors) {
    part(gguf_string(tensor.name));
    part(bytes_of(static_cast<std::uint32_t>(tensor.dims.size())));
    for (const std::int64_t dim : tensor.dims) part(bytes_of(dim));
    part(bytes_of(tensor.type));
    part(bytes_of(offset + static_cast<std::uint64_t>(tensor.moved)));
    offset = align(offset + tensor.data.size());
  }
  image.resize(align(image.size()));
  for (const Tensor& tensor : tensors) {
    part(tensor.data);
    image.resize(align(image.size()));
  }
  return image;
}

namespace {

void add_tensor(GgufModel& model, const std::string& name, std::uint32_t type,
                std::vector<std::int64_t> dims, Random& random) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  EncodedValues encoded = encode(type, count, random);
  model.tensors.push_back(
      {name, type, std::move(dims), std::move(encoded.bytes), std::move(encoded.values)});
}

void add_keys(GgufModel& model, const GgufShape& shape) {
  const std::string prefix = shape.architecture + ".";
  const auto size = [&](const char* key, std::int64_t value) {
    model.set_u32(prefix + key, static_cast<std::uint32_t>(value));
  };
  model.set_string("general.architecture", shape.architecture);
  size("block_count", shape.layers);
  size("context_length", 128);
  size("embedding_length", shape.hidden);
  size("feed_forward_length", shape.feed_forward);
  size("attention.head_count", shape.heads);
  size("attention.head_count_kv", shape.kv_heads);
  size("attention.key_length", shape.head_dim);
  size("attention.value_length", shape.head_dim);
  size("rope.dimension_count", shape.head_dim);
  model.set_f32(prefix + "rope.freq_base", 10000);
  model.set_f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
}

}  // namespace

GgufModel make_gguf_model(const GgufShape& shape, Random& random) {
  GgufModel model;
  add_keys(model, shape);
  const std::int64_t wide = shape.heads * shape.head_dim, narrow = shape.kv_heads * shape.head_dim;
  add_tensor(model, "token_embd.weight", shape.table_type, {shape.hidden, shape.vocab}, random);
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    const auto projection = [&](const char* name, std::int64_t k, std::int64_t n) {
      add_tensor(model, block + name + ".weight", shape.type, {k, n}, random);
    };
    add_tensor(model, block + "attn_norm.weight", kF32, {shape.hidden}, random);
    projection("attn_q", shape.hidden, wide);
    projection("attn_k", shape.hidden, narrow);
    projection("attn_v", shape.hidden, narrow);
    projection("attn_output", wide, shape.hidden);
    if (shape.architecture == "qwen2") {
      add_tensor(model, block + "attn_q.bias", kF32, {wide}, random);
      add_tensor(model, block + "attn_k.bias", kF32, {narrow}, random);
      add_tensor(model, block + "attn_v.bias", kF32, {narrow}, random);
    }
    add_tensor(model, block + "ffn_norm.weight", kF32, {shape.hidden}, random);
    projection("ffn_gate", shape.hidden, shape.feed_forward);
    projection("ffn_up", shape.hidden, shape.feed_forward);
    projection("ffn_down", shape.feed_forward, shape.hidden);
  }
  add_tensor(model, "output_norm.weight", kF32, {shape.hidden}, random);
  if (shape.own_head) {
    add_tensor(model, "output.weight", shape.table_type, {shape.hidden, shape.vocab}, random);
  }
  return model;
}

}  // namespace reprise::test
