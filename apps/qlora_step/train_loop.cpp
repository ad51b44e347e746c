#include "apps/qlora_step/train_loop.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <ostream>
#include <vector>

#include "apps/qlora_step/interrupt.h"

namespace reprise::qlora_step {
namespace {

using Clock = std::chrono::steady_clock;

double mean_of_last_tenth(const std::vector<double>& losses) {
  if (losses.empty()) return 0;
  const std::size_t count = std::max<std::size_t>(1, losses.size() / 10);
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

}  // namespace

const char* name_of(Ending ending) {
  switch (ending) {
    case Ending::kComplete:
      return "complete";
    case Ending::kInterrupted:
      return "interrupted";
    case Ending::kNotFinite:
      return "not finite";
  }
  return "?";
}

LoopResult train(Trainer& trainer, const TrainingData& data, const ScheduleOptions& schedule,
                 const LoopOutputs& outputs) {
  LoopResult result;
  std::vector<double> losses;
  for (std::int64_t step = 1; step <= schedule.steps; ++step) {
    if (interrupt_requested()) {
      result.ending = Ending::kInterrupted;
      break;
    }
    const std::vector<TokenBatch> batches = data.batches_of_step(step);
    StepMetrics metrics{.step = step, .learning_rate = learning_rate(schedule, step)};
    for (const TokenBatch& batch : batches) {
      metrics.real_tokens += batch.real_tokens;
      metrics.padded_tokens += batch.batch * batch.seq;
    }
    const Clock::time_point begin = Clock::now();
    const StepResult done = trainer.step(batches, metrics.learning_rate);
    if (step == 1 && !trainer.eager_reason().empty()) {
      outputs.progress.finish();
      outputs.warnings << "warning: --graph auto: the step runs eagerly, as it could not be "
                       << "captured: " << trainer.eager_reason() << std::endl;
    }
    metrics.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    metrics.loss = done.loss;
    metrics.grad_norm = done.grad_norm;
    metrics.peak_bytes = peak_resident_bytes();
    outputs.metrics.write(metrics);

    result.seconds += metrics.seconds;
    if (!done.finite) {
      result.ending = Ending::kNotFinite;
      result.bad_node = done.bad_node;
      break;
    }
    result.steps = step;
    result.real_tokens += metrics.real_tokens;
    losses.push_back(done.loss);
    if (done.target_tokens == 0) {
      outputs.progress.finish();
      outputs.warnings << "warning: step " << step << ": no token of its batch carries loss, so "
                       << "loss and gradient are 0" << std::endl;
    }
    outputs.progress.show(metrics);
  }
  outputs.progress.finish();
  if (!losses.empty()) result.first_loss = losses.front();
  result.last_loss = mean_of_last_tenth(losses);
  return result;
}

}  // namespace reprise::qlora_step
