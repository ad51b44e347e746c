// What a run will need, before anything is allocated.
#include <cstdio>
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

}  // namespace

std::string to_string(const MemoryReport& report) {
  return "weights " + mib(report.weights) + ", adapters " + mib(report.adapters) + ", optimiser " +
         mib(report.optimizer) + ", activations " + mib(report.activations) + ", scratch " +
         mib(report.scratch) + ", other " + mib(report.other) + ", total " + mib(report.total());
}

void require_fits(const MemoryReport& report, Backend& backend) {
  const std::int64_t available = backend.available_bytes();
  if (report.total() <= available) return;
  const bool weights_alone = report.weights > available;
  throw DoesNotFit("the run needs " + mib(report.total()) + " (" + to_string(report) + ") but " +
                   mib(available) + " are available on " + backend.name() + ": " +
                   (weights_alone ? "the model itself is too large"
                                  : "reduce --batch or --seq (activations), or --rank"));
}

}  // namespace reprise
