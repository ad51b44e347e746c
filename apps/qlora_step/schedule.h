// The learning rate of each step.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace reprise::qlora_step {

enum class Schedule { kConstant, kLinear, kCosine };

const char* name_of(Schedule schedule);
std::optional<Schedule> parse_schedule(std::string_view name);

struct ScheduleOptions {
  Schedule schedule = Schedule::kConstant;
  double peak = 0;          // the rate after the warm-up
  std::int64_t warmup = 0;  // steps; less than `steps`
  std::int64_t steps = 0;   // of the whole run
};

// Rate of `step`, counted from 1. The warm-up rises by peak / warmup a step, so that step 1 moves
// already and step `warmup` is at the peak. From there linear and cosine fall over the remaining
// steps; the rate would be 0 one step after the last, so that every step moves.
double learning_rate(const ScheduleOptions& options, std::int64_t step);

}  // namespace reprise::qlora_step
