// A GGUF model of one layer whose every weight is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace reprise::test {

inline constexpr std::int64_t kHidden = 64, kHeads = 2, kHeadDim = 32, kVocab = 3;

// Every projection is [64, 64] except that k and v have one head; element (r, c) of any matrix
// tells its row, so a wrong order shows.
inline std::vector<float> matrix(std::int64_t rows) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < kHidden; ++c) {
      values.push_back(static_cast<float>(r + 1) * (c % 2 == 0 ? 1.0F : -0.5F));
    }
  }
  return values;
}

inline std::string tiny_gguf(const std::string& architecture,
                             const std::string& extra_tensor = "") {
  GgufWriter writer;
  writer.string("general.architecture", architecture);
  const std::string prefix = architecture + ".";
  writer.u32(prefix + "block_count", 1);
  writer.u32(prefix + "context_length", 16);
  writer.u32(prefix + "embedding_length", kHidden);
  writer.u32(prefix + "feed_forward_length", 64);
  writer.u32(prefix + "attention.head_count", kHeads);
  writer.u32(prefix + "attention.head_count_kv", 1);
  writer.u32(prefix + "rope.dimension_count", kHeadDim);
  writer.f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& dims,
                       std::int64_t rows) {
    std::vector<float> values = matrix(rows);
    if (dims.size() == 1) values.resize(static_cast<std::size_t>(dims[0]));
    writer.tensor(name, 0, dims, bytes_of(values));
  };
  add("token_embd.weight", {kHidden, kVocab}, kVocab);
  add("output_norm.weight", {kHidden}, 1);
  for (const char* norm : {"attn_norm", "ffn_norm"}) {
    add(std::string("blk.0.") + norm + ".weight", {kHidden}, 1);
  }
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    const bool one_head = name == std::string("attn_k") || name == std::string("attn_v");
    const std::int64_t rows = one_head ? kHeadDim : kHidden;
    add(std::string("blk.0.") + name + ".weight", {kHidden, rows}, rows);
    const bool biased = one_head || name == std::string("attn_q");
    if (architecture == "qwen2" && biased) {
      add(std::string("blk.0.") + name + ".bias", {rows}, 1);
    }
  }
  if (!extra_tensor.empty()) add(extra_tensor, {4}, 1);
  return writer.image();
}

}  // namespace reprise::test
