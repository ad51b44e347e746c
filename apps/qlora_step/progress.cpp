#include "apps/qlora_step/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <ostream>

namespace reprise::qlora_step {
namespace {

// Often enough to see that a run goes on, seldom enough for a log.
constexpr std::chrono::seconds kBetweenLines(3);
// A step may take a millisecond; drawing each would cost more than computing it.
constexpr std::chrono::milliseconds kBetweenDrawings(100);
constexpr std::int64_t kBarWidth = 24;

std::string bar(std::int64_t done, std::int64_t all) {
  const auto filled = static_cast<std::size_t>(kBarWidth * done / all);
  std::string text(static_cast<std::size_t>(kBarWidth), '.');
  return "[" + text.replace(0, filled, filled, '#') + "]";
}

}  // namespace

ProgressStyle progress_style(bool quiet) {
  if (quiet) return ProgressStyle::kNone;
  return isatty(STDOUT_FILENO) != 0 ? ProgressStyle::kBar : ProgressStyle::kLines;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  char text[32];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  }
  return text;
}

Progress::Progress(std::ostream& out, ProgressStyle style, std::int64_t steps)
    : out_(out), style_(style), steps_(steps), begin_(Clock::now()) {}

std::string Progress::line(const StepMetrics& m) const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double left = elapsed / static_cast<double>(m.step) * static_cast<double>(steps_ - m.step);
  char text[160];
  std::snprintf(text, sizeof text,
                "step %lld/%lld  loss %.4f  |grad| %.3f  lr %.2e  %.3f s  %.0f tokens/s  %s left",
                static_cast<long long>(m.step), static_cast<long long>(steps_), m.loss, m.grad_norm,
                m.learning_rate, m.seconds, m.tokens_per_second(), clock_text(left).c_str());
  return text;
}

void Progress::show(const StepMetrics& m) {
  if (style_ == ProgressStyle::kNone) return;
  const bool bar_style = style_ == ProgressStyle::kBar;
  const Clock::duration wait = bar_style ? Clock::duration(kBetweenDrawings) : kBetweenLines;
  const Clock::time_point now = Clock::now();
  const bool edge = m.step == 1 || m.step == steps_;
  if (!edge && now - last_shown_ < wait) return;
  last_shown_ = now;
  if (bar_style) {
    // Back to the line's begin, and clear what a longer line left behind.
    out_ << "\r" << bar(m.step, steps_) << " " << line(m) << "\x1b[K" << std::flush;
    line_open_ = true;
  } else {
    out_ << line(m) << std::endl;
  }
}

void Progress::finish() {
  if (line_open_) out_ << std::endl;
  line_open_ = false;
}

}  // namespace reprise::qlora_step
