// The loop over optimiser steps: schedule, metrics, progress, and when to stop early.
#pragma once

#include <iosfwd>
#include <string>

#include "apps/qlora_step/metrics.h"
#include "apps/qlora_step/progress.h"
#include "apps/qlora_step/schedule.h"
#include "apps/qlora_step/training_data.h"
#include "reprise/graphs/trainer.h"

namespace reprise::qlora_step {

enum class Ending { kComplete, kInterrupted, kNotFinite };
const char* name_of(Ending ending);  // "complete"

struct LoopResult {
  Ending ending = Ending::kComplete;
  std::int64_t steps = 0;  // that changed the adapter
  double first_loss = 0;   // of the first step
  double last_loss = 0;    // mean over the last tenth of the steps, as single batches differ
  double seconds = 0;      // in steps
  std::int64_t real_tokens = 0;
  std::string bad_node;  // kNotFinite: where the first NaN or infinity turned up
};

struct LoopOutputs {
  MetricsFile& metrics;
  Progress& progress;
  std::ostream& warnings;
};

LoopResult train(Trainer& trainer, const TrainingData& data, const ScheduleOptions& schedule,
                 const LoopOutputs& outputs);

}  // namespace reprise::qlora_step
