// How much memory of the host can still be used.
#pragma once

#include <cstdint>

namespace reprise {

// The least of what the machine and the control group of this process leave, without swapping.
std::int64_t available_host_bytes();

}  // namespace reprise
