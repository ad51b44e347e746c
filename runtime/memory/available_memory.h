// How much memory of the host can still be used.
#pragma once

#include <cstdint>
#include <filesystem>

namespace reprise {

// The least of what the machine and the control groups of this process leave, without swapping.
// `root`: "/", or a copy of /proc and /sys for tests.
std::int64_t available_host_bytes(const std::filesystem::path& root = "/");

}  // namespace reprise
