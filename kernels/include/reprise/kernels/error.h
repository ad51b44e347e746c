// Errors that Reprise throws. The type says who has to act; the programs turn it into an exit code.
//
//   Error          a defect in the calling program or in Reprise itself          exit 1
//   UsageError     an option or argument makes no sense                         exit 2
//   InputError     a file is missing, malformed, or not supported               exit 3
//   DoesNotFit     the plan needs more memory or space than there is            exit 4
//   NotFiniteError a NaN or infinity turned up in a loss, gradient or weight    exit 5
#pragma once

#include <stdexcept>
#include <string>

namespace reprise {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct UsageError : Error {
  using Error::Error;
};
struct InputError : Error {
  using Error::Error;
};
struct DoesNotFit : Error {
  using Error::Error;
};
struct NotFiniteError : Error {
  using Error::Error;
};

// Throws Error when a condition that the calling code must guarantee does not hold. For conditions
// on files and options throw InputError or UsageError with a message of their own instead.
inline void require(bool condition, const char* what) {
  if (!condition) throw Error(what);
}
inline void require(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

}  // namespace reprise
