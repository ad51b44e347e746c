// LoRA adapters: what is trained. All matrices of a run lie in one flat FP32 buffer, so that
// clipping, the optimiser and a later all-reduce are each one pass over memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reprise/runtime/model_config.h"

namespace reprise {

struct LoraConfig {
  std::int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  std::vector<Projection> target_modules{kAllProjections.begin(), kAllProjections.end()};

  float scale() const { return static_cast<float>(alpha / static_cast<double>(rank)); }
  bool targets(Projection projection) const;
};

// Where the matrices of one adapted projection lie in the flat buffer, in elements.
struct LoraSlot {
  std::int64_t layer = 0;
  Projection projection = Projection::kNone;
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::int64_t rank = 0;
  std::int64_t a_offset = 0;  // [rank, in_features]
  std::int64_t b_offset = 0;  // [out_features, rank]

  std::int64_t a_count() const { return rank * in_features; }
  std::int64_t b_count() const { return out_features * rank; }
};

struct LoraLayout {
  std::vector<LoraSlot> slots;  // by layer, then in the order of kAllProjections
  std::int64_t count = 0;       // elements of the flat buffer, padding included

  const LoraSlot* find(std::int64_t layer, Projection projection) const;
};

// Every matrix starts at a multiple of 16 elements (64 bytes).
LoraLayout make_lora_layout(const ModelConfig& model, const LoraConfig& lora);

// PEFT's initial values: A uniform in +-1/sqrt(in_features) (Kaiming with a = sqrt 5), B zero; the
// padding is zero. The draws depend on the seed and the position only.
void initialise_lora(const LoraLayout& layout, std::uint64_t seed, float* params);

// PEFT's directory: adapter_config.json and adapter_model.safetensors. Throws InputError naming
// file, key, expected and found, when a key is missing, unknown, or of another shape than the
// model's.
LoraConfig read_lora_config(const std::filesystem::path& directory);
void read_lora_weights(const std::filesystem::path& directory, const LoraLayout& layout,
                       float* params);

// Writes the directory whole or not at all: files to temporary names, synced, renamed. Refuses
// values that are not finite with NotFiniteError and leaves what was there.
void write_lora(const std::filesystem::path& directory, const LoraConfig& lora,
                const LoraLayout& layout, const float* params, const std::string& base_model);

}  // namespace reprise
