#include "reprise/runtime/lora.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "reprise/kernels/dropout.h"
#include "reprise/kernels/error.h"

namespace reprise {
namespace {

constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes, a cache line and a vector register

std::int64_t aligned(std::int64_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

// One block of the generator gives four draws. The counter is the element's place in the model, so
// that the values of a matrix do not depend on which other modules have an adapter.
void fill_uniform(const LoraSlot& slot, std::uint64_t seed, float bound, float* a) {
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed),
                                            static_cast<std::uint32_t>(seed >> 32)};
  for (std::int64_t begin = 0; begin < slot.a_count(); begin += 4) {
    const auto block = static_cast<std::uint64_t>(begin / 4);
    const std::array<std::uint32_t, 4> draws = philox4x32(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
         static_cast<std::uint32_t>(slot.layer), static_cast<std::uint32_t>(slot.projection)},
        key);
    const std::int64_t end = std::min(begin + 4, slot.a_count());
    for (std::int64_t i = begin; i < end; ++i) {
      // 24 bits, so that the draw is exact in FP32; the half keeps the distribution symmetric.
      const float draw = static_cast<float>(draws[static_cast<std::size_t>(i - begin)] >> 8);
      a[i] = bound * (2 * ((draw + 0.5f) * 0x1p-24f) - 1);
    }
  }
}

}  // namespace

bool LoraConfig::targets(Projection projection) const {
  return std::find(target_modules.begin(), target_modules.end(), projection) !=
         target_modules.end();
}

const LoraSlot* LoraLayout::find(std::int64_t layer, Projection projection) const {
  const auto place = [](std::int64_t l, Projection p) {
    return l * kProjections + static_cast<std::int64_t>(p);
  };
  const auto found = std::lower_bound(slots.begin(), slots.end(), place(layer, projection),
                                      [&place](const LoraSlot& slot, std::int64_t wanted) {
                                        return place(slot.layer, slot.projection) < wanted;
                                      });
  if (found == slots.end() || found->layer != layer || found->projection != projection) {
    return nullptr;
  }
  return &*found;
}

LoraLayout make_lora_layout(const ModelConfig& model, const LoraConfig& lora) {
  require(lora.rank >= 1, "make_lora_layout: the rank must be at least 1");
  LoraLayout layout;
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    for (const Projection projection : kAllProjections) {
      if (!lora.targets(projection)) continue;
      LoraSlot slot;
      slot.layer = layer;
      slot.projection = projection;
      slot.in_features = model.in_features(projection);
      slot.out_features = model.out_features(projection);
      slot.rank = lora.rank;
      slot.a_offset = layout.count;
      slot.b_offset = slot.a_offset + aligned(slot.a_count());
      layout.count = slot.b_offset + aligned(slot.b_count());
      layout.slots.push_back(slot);
    }
  }
  return layout;
}

void initialise_lora(const LoraLayout& layout, std::uint64_t seed, float* params) {
  std::fill_n(params, layout.count, 0.0f);
  for (const LoraSlot& slot : layout.slots) {
    // Kaiming's bound for a = sqrt 5: sqrt(6 / ((1 + 5) * in_features)).
    const double bound = 1 / std::sqrt(static_cast<double>(slot.in_features));
    fill_uniform(slot, seed, static_cast<float>(bound), params + slot.a_offset);
  }
}

}  // namespace reprise
