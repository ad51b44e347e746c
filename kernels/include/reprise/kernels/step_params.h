// All that changes from one replay of a step graph to the next, besides the tokens: one block in
// the memory of the device. Kernels read it when they run; nothing of it is ever passed by value,
// or a captured graph would keep the values of the day it was captured.
#pragma once

#include <cstdint>

namespace reprise {

struct StepParams {
  std::int64_t step = 1;        // number of the optimiser step, from 1
  std::uint64_t seed = 0;       // of the run; dropout draws from (seed, step, micro_step, site)
  float learning_rate = 0;      // of this step
  float loss_scale = 0;         // 1 / valid target tokens of the whole step; 0 if there are none
  std::int32_t micro_step = 0;  // 0 ... accumulate - 1
  std::int32_t reserved = 0;
};

}  // namespace reprise
