#include "kernels/cpu/cgroup_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>

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

// The group and its parents up to and including `mount`.
double smallest_quota(const std::filesystem::path& mount, const std::filesystem::path& group) {
  double quota = group_quota(mount);
  std::filesystem::path path = mount;
  for (const std::filesystem::path& part : group.relative_path()) {
    path /= part;
    quota = std::min(quota, group_quota(path));
  }
  return quota;
}

bool names_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

int cgroup_cpu_limit(const std::filesystem::path& root) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  // Lines of /proc/self/cgroup are "id:controllers:path"; version 2 has no controllers.
  std::ifstream file(root / "proc/self/cgroup");
  double quota = kNoQuota;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::filesystem::path group = line.substr(second + 1);
    if (controllers.empty()) {
      quota = std::min(quota, smallest_quota(mount, group));
    } else if (names_cpu(controllers)) {
      for (const char* folder : {"cpu", "cpu,cpuacct"}) {
        quota = std::min(quota, smallest_quota(mount / folder, group));
      }
    }
  }
  if (quota == kNoQuota) return 0;
  return std::max(1, static_cast<int>(std::min(std::floor(quota), 1e6)));
}

}  // namespace reprise::cpu
