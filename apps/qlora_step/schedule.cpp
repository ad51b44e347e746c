#include "apps/qlora_step/schedule.h"

#include <cmath>
#include <numbers>

namespace reprise::qlora_step {

const char* name_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::kConstant:
      return "constant";
    case Schedule::kLinear:
      return "linear";
    case Schedule::kCosine:
      return "cosine";
  }
  return "?";
}

std::optional<Schedule> parse_schedule(std::string_view name) {
  for (const Schedule schedule : {Schedule::kConstant, Schedule::kLinear, Schedule::kCosine}) {
    if (name == name_of(schedule)) return schedule;
  }
  return std::nullopt;
}

double learning_rate(const ScheduleOptions& options, std::int64_t step) {
  if (step <= options.warmup) {
    return options.peak * static_cast<double>(step) / static_cast<double>(options.warmup);
  }
  if (options.schedule == Schedule::kConstant) return options.peak;
  const auto done = static_cast<double>(step - 1 - options.warmup);
  const double share = done / static_cast<double>(options.steps - options.warmup);
  if (options.schedule == Schedule::kLinear) return options.peak * (1 - share);
  return options.peak * 0.5 * (1 + std::cos(std::numbers::pi * share));
}

}  // namespace reprise::qlora_step
