// What a run will need, before anything is allocated.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "reprise/graphs/trainer.h"

namespace reprise {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::string mib(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / kMiB);
  return text;
}

// MemAvailable of the kernel: what can be used without swapping.
std::int64_t machine_available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  while (file >> key) {
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<std::int64_t>::max();
}

// What the control group leaves, if it limits memory; "max" fails to parse and means no limit.
std::int64_t cgroup_available_bytes(const std::filesystem::path& group) {
  std::int64_t limit = 0, used = 0;
  std::ifstream limit_file(group / "memory.max"), used_file(group / "memory.current");
  if (!(limit_file >> limit) || !(used_file >> used)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return std::max<std::int64_t>(limit - used, 0);
}

}  // namespace

std::string to_string(const MemoryReport& report) {
  return "weights " + mib(report.weights) + ", adapters " + mib(report.adapters) + ", optimiser " +
         mib(report.optimizer) + ", activations " + mib(report.activations) + ", scratch " +
         mib(report.scratch) + ", total " + mib(report.total());
}

void require_fits(const MemoryReport& report) {
  const std::int64_t available =
      std::min(machine_available_bytes(), cgroup_available_bytes("/sys/fs/cgroup"));
  if (report.total() <= available) return;
  const bool weights_alone = report.weights > available;
  throw DoesNotFit("the run needs " + mib(report.total()) + " (" + to_string(report) + ") but " +
                   mib(available) + " are available: " +
                   (weights_alone ? "the model itself is too large"
                                  : "reduce --batch or --seq (activations), or --rank"));
}

}  // namespace reprise
