// How far a run is. On a terminal one line that is drawn over; elsewhere, in a log, a full line
// every few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "apps/qlora_step/metrics.h"

namespace reprise::qlora_step {

enum class ProgressStyle { kNone, kLines, kBar };

// kNone if quiet; otherwise kBar when standard output is a terminal.
ProgressStyle progress_style(bool quiet);

class Progress {
 public:
  Progress(std::ostream& out, ProgressStyle style, std::int64_t steps);

  void show(const StepMetrics& metrics);
  // Ends a line that is being drawn over, so that other text can follow.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::string line(const StepMetrics& metrics) const;

  std::ostream& out_;
  ProgressStyle style_;
  std::int64_t steps_;
  Clock::time_point begin_;
  Clock::time_point last_shown_;
  bool line_open_ = false;
};

// "1:05" or "2:03:04".
std::string clock_text(double seconds);

}  // namespace reprise::qlora_step
