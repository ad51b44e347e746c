// Models made from a seed. Every value is a function of the seed, the tensor and its index alone.
#include <cmath>

#include "reprise/kernels/dtype.h"
#include "runtime/model/weight_sink.h"

namespace reprise {
namespace {

// SplitMix64's finaliser as a counter-based generator: one draw for each (stream, index).
std::uint64_t draw(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t z = stream + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Approximately normal, variance 1: the sum of four uniform 16-bit draws. Quick, and close enough
// to trained weights for timing; nothing depends on its tails.
float normal_draw(std::uint64_t stream, std::uint64_t index) {
  const std::uint64_t bits = draw(stream, index);
  const auto sum = static_cast<std::int64_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                             ((bits >> 32) & 0xffff) + (bits >> 48));
  // Mean 2 * 65535, variance 4 * 65536^2 / 12.
  return static_cast<float>(sum - 131070) * (1.0f / 37837.2f);
}

class RandomWeights {
 public:
  RandomWeights(std::uint64_t seed, const LoadOptions& options) : seed_(seed), options_(options) {}

  FillRange normal(float mean, float deviation) {
    const std::uint64_t stream = draw(seed_, tensors_++);
    return [=](std::int64_t begin, std::int64_t count, float* out) {
      for (std::int64_t i = 0; i < count; ++i) {
        out[i] = mean + deviation * normal_draw(stream, static_cast<std::uint64_t>(begin + i));
      }
    };
  }
  Tensor vector(std::int64_t size, float mean, float deviation) {
    return dense_tensor(DType::kF32, {size}, "random vector", normal(mean, deviation));
  }
  Tensor table(const ModelConfig& config) {
    // Rows of length one: hidden states and tied logits of order one.
    const float deviation = 1.0f / std::sqrt(static_cast<float>(config.hidden_size));
    return dense_tensor(activation_dtype(options_.compute), {config.vocab_size, config.hidden_size},
                        "random embedding", normal(0, deviation));
  }
  Nf4Weight projection(std::int64_t n, std::int64_t k) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(k));
    return quantize_weight({.name = "random weight", .n = n, .k = k, .pool = options_.pool},
                           normal(0, deviation));
  }

 private:
  std::uint64_t seed_;
  LoadOptions options_;
  std::uint64_t tensors_ = 0;
};

}  // namespace

Model random_model(const ModelConfig& config, std::uint64_t seed, const LoadOptions& options) {
  Model model;
  model.config = config;
  model.source = "random weights of seed " + std::to_string(seed);
  validate(config, model.source);
  RandomWeights random(seed, options);
  model.embedding = random.table(config);
  if (!config.tie_word_embeddings) model.lm_head = random.table(config);
  // A norm weight of about 1, apart from it so that a forgotten weight would show.
  constexpr float kNormDeviation = 0.05f, kBiasDeviation = 0.1f;
  model.final_norm = random.vector(config.hidden_size, 1, kNormDeviation);
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    LayerWeights& layer = model.layers.emplace_back();
    layer.input_norm = random.vector(config.hidden_size, 1, kNormDeviation);
    layer.post_attention_norm = random.vector(config.hidden_size, 1, kNormDeviation);
    for (const Projection p : kAllProjections) {
      const auto i = static_cast<std::size_t>(p);
      layer.projections[i] = random.projection(config.out_features(p), config.in_features(p));
      if (config.has_bias(p)) {
        layer.biases[i] = random.vector(config.out_features(p), 0, kBiasDeviation);
      }
    }
  }
  return model;
}

std::int64_t weight_bytes(const ModelConfig& config, DType embedding_dtype) {
  const std::int64_t table = config.vocab_size * config.hidden_size * size_of(embedding_dtype);
  std::int64_t per_layer = 2 * config.hidden_size * size_of(DType::kF32);
  for (const Projection p : kAllProjections) {
    const std::int64_t count = config.in_features(p) * config.out_features(p);
    per_layer += nf4_packed_bytes(count) + nf4_blocks(count, 64) * size_of(DType::kF32);
    if (config.has_bias(p)) per_layer += config.out_features(p) * size_of(DType::kF32);
  }
  return table * (config.tie_word_embeddings ? 1 : 2) + per_layer * config.num_hidden_layers +
         config.hidden_size * size_of(DType::kF32);
}

}  // namespace reprise
