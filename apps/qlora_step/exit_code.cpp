#include "apps/qlora_step/exit_code.h"

#include <new>

#include "reprise/kernels/error.h"

namespace reprise::qlora_step {
namespace {

template <class Type>
bool is(const std::exception& error) {
  return dynamic_cast<const Type*>(&error) != nullptr;
}

struct Row {
  bool (*matches)(const std::exception&);
  int code;
};

constexpr Row kTable[] = {
    {is<UsageError>, kExitUsage},         {is<InputError>, kExitInput},
    {is<DoesNotFit>, kExitDoesNotFit},    {is<std::bad_alloc>, kExitDoesNotFit},
    {is<NotFiniteError>, kExitNotFinite},
};

}  // namespace

int exit_code_of(const std::exception& error) {
  for (const Row& row : kTable) {
    if (row.matches(error)) return row.code;
  }
  return kExitDefect;
}

}  // namespace reprise::qlora_step
