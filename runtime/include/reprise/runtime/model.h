// The frozen weights of a model in memory: projections in NF4, embeddings and head in 16 or 32
// bits, norms and biases in FP32.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "reprise/kernels/nf4.h"
#include "reprise/runtime/buffer.h"
#include "reprise/runtime/model_config.h"

namespace reprise {

class Backend;
class ThreadPool;

// An owned NF4 matrix.
struct Nf4Weight {
  Buffer packed;
  Buffer absmax;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t block_size = 64;
  NibbleOrder order = NibbleOrder::kHighFirst;

  Nf4View view() const {
    return {reinterpret_cast<const std::uint8_t*>(packed.data()),
            reinterpret_cast<const float*>(absmax.data()),
            n,
            k,
            block_size,
            order};
  }
  std::int64_t bytes() const { return packed.bytes() + absmax.bytes(); }
};

struct LayerWeights {
  Tensor input_norm;           // F32 [C]
  Tensor post_attention_norm;  // F32 [C]
  std::array<Nf4Weight, kProjections> projections;
  std::array<Tensor, kProjections> biases;  // F32 [N]; not present: none
};

struct Model {
  ModelConfig config;
  Tensor embedding;   // F32 or BF16 [V, C]
  Tensor lm_head;     // like the embedding; not present when tied
  Tensor final_norm;  // F32 [C]
  std::vector<LayerWeights> layers;
  std::string source;              // for messages: the path, or "seed 1 of shape tiny"
  std::vector<std::string> log;    // what the user should know about how it was loaded
  const Backend* place = nullptr;  // whose memory the weights are in; null: the host's

  ConstView head() const { return lm_head.present() ? lm_head.view() : embedding.view(); }
};

struct LoadOptions {
  // The embedding and the head keep BF16 when the file has it; other types become BF16 for bf16
  // compute, where products round to it anyway, and F32 otherwise.
  ComputeType compute = ComputeType::kF32;
  ThreadPool* pool = nullptr;
};

// Reads the configuration only; allocates nothing large. `path`: a directory with config.json and
// safetensors, or a .gguf file. Throws InputError.
ModelConfig load_model_config(const std::filesystem::path& path);

// Loads and quantises, one tensor at a time. Prequantised NF4 is used as it is. Throws InputError.
Model load_model(const std::filesystem::path& path, const LoadOptions& options);

// A model of that shape with weights from a seed, scaled so that activations stay of order one.
Model random_model(const ModelConfig& config, std::uint64_t seed, const LoadOptions& options);

// Bytes of the frozen weights, before anything is loaded.
std::int64_t weight_bytes(const ModelConfig& config, DType embedding_dtype);

}  // namespace reprise
