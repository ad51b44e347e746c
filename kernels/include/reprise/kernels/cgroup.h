// The control groups that limit this process, of version 1 and 2.
// Source: the Linux kernel's documentation, cgroups(7).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace reprise {

// Folders of the groups that this process is in under `controller` ("cpu", "memory"), its own and
// all above it. A folder may not exist: in a container only a part of the path is mounted. `root`:
// "/", or a copy of /proc and /sys for tests.
std::vector<std::filesystem::path> cgroup_folders(const std::filesystem::path& root,
                                                  const std::string& controller);

}  // namespace reprise
