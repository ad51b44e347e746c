// dropout_factor() of reprise/kernels/dropout.h for kernels: the same bits.
#pragma once

#include "kernels/device/device.h"
#include "reprise/kernels/dropout.h"

namespace reprise::cuda {

struct DeviceDropout {
  float probability = 0;
  float kept = 1;  // the factor of elements that stay
  std::uint32_t site = 0;
  const StepParams* params = nullptr;

  DeviceDropout() = default;
  DeviceDropout(const Dropout& dropout)
      : probability(dropout.probability),
        kept(1.0f / (1.0f - dropout.probability)),
        site(dropout.site),
        params(dropout.params) {}

  __device__ float factor(std::int64_t index) const {
    if (probability <= 0) return 1.0f;
    const auto block = static_cast<std::uint64_t>(index) / 4;
    const std::array<std::uint32_t, 4> draws = philox4x32(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32) ^ (site << 8),
         static_cast<std::uint32_t>(params->step), static_cast<std::uint32_t>(params->micro_step)},
        {static_cast<std::uint32_t>(params->seed), static_cast<std::uint32_t>(params->seed >> 32)});
    // Chosen by comparisons: an index would put the draws into local memory.
    const int which = static_cast<int>(index & 3);
    const std::uint32_t low = which == 0 ? draws[0] : draws[1];
    const std::uint32_t high = which == 2 ? draws[2] : draws[3];
    const float uniform = static_cast<float>((which < 2 ? low : high) >> 8) * 0x1p-24f;
    return uniform < probability ? 0.0f : kept;
  }
};

}  // namespace reprise::cuda
