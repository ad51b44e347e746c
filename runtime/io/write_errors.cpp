#include "runtime/io/write_errors.h"

#include <cerrno>

#include "reprise/kernels/error.h"

namespace reprise {

bool is_out_of_space(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
}

void throw_not_written(const std::string& message, int error_number) {
  if (is_out_of_space(error_number)) throw DoesNotFit(message);
  switch (error_number) {
    case EACCES:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOENT:
    case ENOTDIR:
    case EPERM:
    case EROFS:
      throw UsageError(message);
    default:
      throw Error(message);
  }
}

}  // namespace reprise
