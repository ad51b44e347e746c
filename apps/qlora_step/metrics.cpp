#include "apps/qlora_step/metrics.h"

#include <nlohmann/json.hpp>

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"

namespace reprise::qlora_step {

std::string to_json_line(const StepMetrics& m) {
  // A value that is not finite becomes null: JSON has no other word for it.
  const nlohmann::ordered_json line = {
      {"step", m.step},
      {"loss", m.loss},
      {"grad_norm", m.grad_norm},
      {"learning_rate", m.learning_rate},
      {"real_tokens", m.real_tokens},
      {"padded_tokens", m.padded_tokens},
      {"tokens_per_second", m.tokens_per_second()},
      {"seconds", m.seconds},
      {"peak_bytes", m.peak_bytes},
  };
  return line.dump();
}

MetricsFile::MetricsFile(const std::filesystem::path& path) : path_(path) {
  if (path.empty()) return;
  file_.open(path, std::ios::trunc);
  if (!file_) throw UsageError(in_quotes(path) + ": cannot be written");
}

void require_writable_metrics(const std::filesystem::path& path) {
  // Appending leaves what is there until the first step is done.
  if (!std::ofstream(path, std::ios::app)) {
    throw UsageError(in_quotes(path) + ": cannot be written");
  }
}

void MetricsFile::write(const StepMetrics& metrics) {
  if (path_.empty()) return;
  file_ << to_json_line(metrics) << std::endl;
  if (!file_) throw DoesNotFit(in_quotes(path_) + ": writing failed; is the disk full?");
}

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    std::int64_t kib = 0;
    if (key == "VmHWM:" && status >> kib) return kib * 1024;
    std::getline(status, key);
  }
  return 0;
}

}  // namespace reprise::qlora_step
