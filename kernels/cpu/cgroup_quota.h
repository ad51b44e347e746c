// CPU quotas of Linux control groups, version 2 (cpu.max) and 1 (cpu.cfs_quota_us).
#pragma once

#include <filesystem>

namespace reprise::cpu {

// The smallest number of whole CPUs that the process's group or one of its parents may use, at
// least 1; 0 when there is no quota. `root` is the file system root: a test passes a folder with
// proc/self/cgroup and sys/fs/cgroup in it.
int cgroup_cpu_limit(const std::filesystem::path& root);

}  // namespace reprise::cpu
