#include "runtime/memory/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <tuple>

#include "reprise/kernels/cgroup.h"

namespace reprise {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number behind `key` in a file of lines "key number", or `otherwise`.
std::int64_t number_of(const std::filesystem::path& path, const std::string& key,
                       std::int64_t otherwise) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    std::int64_t number = 0;
    if (word == key && file >> number) return number;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return otherwise;
}

std::int64_t only_number(const std::filesystem::path& path) {
  std::int64_t number = 0;
  std::ifstream file(path);
  return file >> number ? number : kNoLimit;  // "max" and a missing file: no limit
}

// What one group leaves. Pages of files that nobody uses count as used, but go when memory is
// needed.
std::int64_t left_by(const std::filesystem::path& group) {
  for (const auto& [limit_name, used_name, idle_name] :
       {std::tuple("memory.max", "memory.current", "inactive_file"),
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}}) {
    const std::int64_t limit = only_number(group / limit_name);
    const std::int64_t used = only_number(group / used_name);
    if (limit == kNoLimit || used == kNoLimit) continue;
    const std::int64_t idle = number_of(group / "memory.stat", idle_name, 0);
    return std::max<std::int64_t>(limit - (used - std::min(idle, used)), 0);
  }
  return kNoLimit;
}

}  // namespace

std::int64_t available_host_bytes(const std::filesystem::path& root) {
  const std::int64_t kib = number_of(root / "proc/meminfo", "MemAvailable:", kNoLimit / 1024);
  std::int64_t least = kib * 1024;
  for (const std::filesystem::path& group : cgroup_folders(root, "memory")) {
    least = std::min(least, left_by(group));
  }
  return least;
}

}  // namespace reprise
