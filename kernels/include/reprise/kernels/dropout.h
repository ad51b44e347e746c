// Dropout masks from a counter-based generator: the same (seed, step, micro_step, site, element)
// gives the same draw on every device, in any order, in forward and backward, so that no mask is
// ever stored. Generator: Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (2011).
#pragma once

#include <array>
#include <cstdint>

#include "reprise/kernels/step_params.h"

namespace reprise {

struct Dropout {
  float probability = 0;               // of an element being dropped, [0, 1); 0: no dropout
  std::uint32_t site = 0;              // which place in the model draws
  const StepParams* params = nullptr;  // read when the op runs; may be null if probability is 0
};

constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The factor that element `index` of the site's input is multiplied by: 0 or 1 / (1 - probability).
inline float dropout_factor(const Dropout& dropout, std::int64_t index) {
  if (dropout.probability <= 0) return 1.0f;
  const StepParams& p = *dropout.params;
  const auto block = static_cast<std::uint64_t>(index) / 4;
  const std::array<std::uint32_t, 4> draws =
      philox4x32({static_cast<std::uint32_t>(block),
                  static_cast<std::uint32_t>(block >> 32) ^ (dropout.site << 8),
                  static_cast<std::uint32_t>(p.step), static_cast<std::uint32_t>(p.micro_step)},
                 {static_cast<std::uint32_t>(p.seed), static_cast<std::uint32_t>(p.seed >> 32)});
  // 24 bits, so that the comparison is exact in FP32.
  const float uniform = static_cast<float>(draws[index & 3] >> 8) * 0x1p-24f;
  return uniform < dropout.probability ? 0.0f : 1.0f / (1.0f - dropout.probability);
}

}  // namespace reprise
