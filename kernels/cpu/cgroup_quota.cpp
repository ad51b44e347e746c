#include "kernels/cpu/cgroup_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "reprise/kernels/cgroup.h"

namespace reprise::cpu {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// CPUs that the files of one group allow. A missing file, "max" and -1 mean no quota.
double group_quota(const std::filesystem::path& group) {
  double quota = 0, period = 0;
  std::ifstream v2(group / "cpu.max");
  if (v2 >> quota >> period && quota > 0 && period > 0) return quota / period;
  std::ifstream v1_quota(group / "cpu.cfs_quota_us"), v1_period(group / "cpu.cfs_period_us");
  if (v1_quota >> quota && v1_period >> period && quota > 0 && period > 0) return quota / period;
  return kNoQuota;
}

}  // namespace

int cgroup_cpu_limit(const std::filesystem::path& root) {
  double quota = kNoQuota;
  for (const std::filesystem::path& group : cgroup_folders(root, "cpu")) {
    quota = std::min(quota, group_quota(group));
  }
  if (quota == kNoQuota) return 0;
  return std::max(1, static_cast<int>(std::min(std::floor(quota), 1e6)));
}

}  // namespace reprise::cpu
