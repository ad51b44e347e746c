// Rotary angles, in double precision until the last rounding.
#include <cmath>
#include <numbers>

#include "reprise/runtime/model_config.h"

namespace reprise {
namespace {

// Llama 3 stretches slow rotations by `factor`, keeps quick ones, and blends in between.
double scaled_frequency(double frequency, const Llama3Rope& rope) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double low = rope.original_max_position_embeddings / rope.low_freq_factor;
  const double high = rope.original_max_position_embeddings / rope.high_freq_factor;
  if (wavelength < high) return frequency;
  if (wavelength > low) return frequency / rope.factor;
  const double blend = (rope.original_max_position_embeddings / wavelength - rope.low_freq_factor) /
                       (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - blend) * frequency / rope.factor + blend * frequency;
}

}  // namespace

std::vector<float> rope_table(const ModelConfig& config, std::int64_t seq) {
  const std::int64_t half = config.head_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(seq * half * 2));
  for (std::int64_t d = 0; d < half; ++d) {
    const double exponent = -2.0 * static_cast<double>(d) / static_cast<double>(config.head_dim);
    double frequency = std::pow(config.rope_theta, exponent);
    if (config.llama3_rope) frequency = scaled_frequency(frequency, *config.llama3_rope);
    for (std::int64_t s = 0; s < seq; ++s) {
      const double angle = static_cast<double>(s) * frequency;
      const auto i = static_cast<std::size_t>((s * half + d) * 2);
      table[i] = static_cast<float>(std::cos(angle));
      table[i + 1] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace reprise
