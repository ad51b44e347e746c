// What each step reports: one JSON object a line, flushed with every step, so that a run can be
// watched and nothing is lost when it ends early.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace reprise::qlora_step {

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;       // mean over the step's target tokens
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  std::int64_t real_tokens = 0;    // of all micro-batches, without padding
  std::int64_t padded_tokens = 0;  // with it
  double seconds = 0;
  std::int64_t peak_bytes = 0;  // VmHWM of the process

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(real_tokens) / seconds : 0;
  }
};

std::string to_json_line(const StepMetrics& metrics);

class MetricsFile {
 public:
  // An empty path: nothing is written. Throws UsageError when the file can't be created.
  explicit MetricsFile(const std::filesystem::path& path);
  // Throws DoesNotFit when the line did not reach the file.
  void write(const StepMetrics& metrics);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

// Finds out before a run whether MetricsFile could write there; changes nothing but that the file
// exists. Throws UsageError.
void require_writable_metrics(const std::filesystem::path& path);

// The most memory that this process has had resident so far; 0 where the kernel does not say.
std::int64_t peak_resident_bytes();

}  // namespace reprise::qlora_step
