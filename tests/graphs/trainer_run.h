// A tiny model with a trainer, for tests of whole steps.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "reprise/graphs/trainer.h"
#include "tests/support/tiny_run.h"

namespace reprise::test {

inline constexpr std::uint64_t kModelSeed = 5;

inline Model tiny_model(ComputeType compute = ComputeType::kF32) {
  return random_model(tiny_config(), kModelSeed, {.compute = compute});
}

// One trainer with what it refers to.
struct Run {
  Model model;
  std::unique_ptr<Backend> backend;
  Trainer trainer;

  Run(const NamedBackend& where, const TrainerOptions& options, Model with = tiny_model())
      : model(std::move(with)),
        backend(where.make(options.linear)),
        trainer(model, options, *backend) {
    trainer.initialise(3);
    // B starts at zero, which would hide whatever A's gradient does.
    Random random(17);
    std::vector<float> start = params();
    for (const LoraSlot& slot : trainer.layout().slots) {
      for (std::int64_t i = 0; i < slot.b_count(); ++i) {
        start[static_cast<std::size_t>(slot.b_offset + i)] =
            static_cast<float>(0.1 * random.normal());
      }
    }
    trainer.set_lora_params(start);
  }
  std::vector<float> params() const { return trainer.lora_params(); }
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace reprise::test
