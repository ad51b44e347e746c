// The kernels that were launched so far, by the address of their host function.
#include "kernels/simt/kernel_table.h"

#include <map>
#include <mutex>

namespace reprise::simt {
namespace {

std::mutex mutex;

std::map<const void*, KernelEntry>& kernels() {
  static std::map<const void*, KernelEntry> table;
  return table;
}

}  // namespace

void add_kernel(const void* function, const KernelEntry& entry) {
  const std::lock_guard lock(mutex);
  kernels().emplace(function, entry);
}

const KernelEntry* find_kernel(const void* function) {
  const std::lock_guard lock(mutex);
  const auto found = kernels().find(function);
  return found == kernels().end() ? nullptr : &found->second;
}

}  // namespace reprise::simt
