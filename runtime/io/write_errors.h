// Which type of error a failed system call becomes when nothing has been written.
#pragma once

#include <string>

namespace reprise {

// Whether the disk, the quota or the process's limit on file sizes is at fault.
bool is_out_of_space(int error_number);

// DoesNotFit for lack of space, UsageError for a path that cannot be written to, else Error.
[[noreturn]] void throw_not_written(const std::string& message, int error_number);

}  // namespace reprise
