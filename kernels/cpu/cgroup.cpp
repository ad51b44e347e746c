#include "reprise/kernels/cgroup.h"

#include <fstream>

namespace reprise {
namespace {

// `mount` and every folder on the way to `group`.
void add_path(const std::filesystem::path& mount, const std::filesystem::path& group,
              std::vector<std::filesystem::path>& folders) {
  std::filesystem::path path = mount;
  folders.push_back(path);
  for (const std::filesystem::path& part : group.relative_path()) {
    path /= part;
    folders.push_back(path);
  }
}

}  // namespace

std::vector<std::filesystem::path> cgroup_folders(const std::filesystem::path& root,
                                                  const std::string& controller) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::vector<std::filesystem::path> folders;
  // Lines of /proc/self/cgroup are "id:controllers:path"; version 2 has no controllers.
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::filesystem::path group = line.substr(second + 1);
    if (controllers.empty()) {
      add_path(mount, group, folders);
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      // The mount has the name of all controllers; that of one is a link to it.
      add_path(mount / controller, group, folders);
      if (controllers != controller) add_path(mount / controllers, group, folders);
    }
  }
  return folders;
}

}  // namespace reprise
