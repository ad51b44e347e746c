#include "runtime/memory/available_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace reprise {
namespace {

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

std::int64_t available_host_bytes() {
  return std::min(machine_available_bytes(), cgroup_available_bytes("/sys/fs/cgroup"));
}

}  // namespace reprise
