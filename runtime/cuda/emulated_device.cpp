// Loads the emulated device. It brings a CUDA runtime of its own with hidden symbols, so that a
// real one in the same program never meets it.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "reprise/runtime/backend.h"

namespace reprise {
namespace {

constexpr const char* kLibrary = "libreprise_emulated.so";

// Where the library may be: where the environment says, else beside the program or in the lib
// folder next to it.
std::vector<std::filesystem::path> candidates() {
  const char* named = std::getenv("REPRISE_EMULATED_DEVICE");
  if (named != nullptr && *named != '\0') return {named};
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {folder / kLibrary, folder.parent_path() / "lib" / kLibrary};
}

void* load() {
  std::string tried;
  for (const std::filesystem::path& path : candidates()) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      tried += "\n  " + path.string() + ": no such file";
      continue;
    }
    // Never unloaded: memory that it gave out refers to its code.
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr) return library;
    tried += std::string("\n  ") + ::dlerror();
  }
  throw UsageError(
      "the emulated device is not there; builds that find CUDA's headers and Boost.Context have "
      "it:" +
      tried);
}

}  // namespace

std::unique_ptr<Backend> make_emulated_backend() {
  using Make = Backend* (*)();
  const auto make = reinterpret_cast<Make>(::dlsym(load(), "reprise_emulated_device"));
  if (make == nullptr) throw UsageError(std::string(kLibrary) + " is of another version");
  return std::unique_ptr<Backend>(make());
}

}  // namespace reprise
