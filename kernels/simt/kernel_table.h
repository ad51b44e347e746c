// What a launch needs to know of a kernel and CUDA's launch call does not carry: its name, the
// sizes of its arguments (a captured launch keeps copies of them) and how to call it.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace reprise::simt {

struct KernelEntry {
  const char* name;
  void (*call)(const void* function, void* const* arguments);
  // Zeroes the bytes between the members of the arguments: they hold whatever was there before, and
  // the search for freed pointers would take that for one.
  void (*clear_padding)(void* const* arguments);
  const std::size_t* argument_bytes;
  std::size_t argument_count;
};

void add_kernel(const void* function, const KernelEntry& entry);
// Null for a function that was never registered.
const KernelEntry* find_kernel(const void* function);

// Why the last failed launch or call failed, in words; empty where nothing failed.
std::string failure_detail();
// Back to a device without work, failures and captures; memory stays. For tests: a real device
// leaves a failed launch behind only with its process.
void reset_device();

template <class... Params, std::size_t... Index>
void call_kernel(void (*kernel)(Params...), void* const* arguments, std::index_sequence<Index...>) {
  kernel(*static_cast<std::remove_cvref_t<Params>*>(arguments[Index])...);
}

template <class... Params, std::size_t... Index>
void clear_padding(void* const* arguments, std::index_sequence<Index...>) {
  (__builtin_clear_padding(static_cast<std::remove_cvref_t<Params>*>(arguments[Index])), ...);
}

template <class... Params>
void register_kernel(void (*kernel)(Params...), const char* name) {
  // The last element keeps the array from being empty.
  static constexpr std::size_t kBytes[] = {sizeof(std::remove_cvref_t<Params>)..., 0};
  const auto call = [](const void* function, void* const* arguments) {
    call_kernel(reinterpret_cast<void (*)(Params...)>(const_cast<void*>(function)), arguments,
                std::index_sequence_for<Params...>{});
  };
  const auto clear = [](void* const* arguments) {
    clear_padding<Params...>(arguments, std::index_sequence_for<Params...>{});
  };
  add_kernel(reinterpret_cast<const void*>(kernel), {name, call, clear, kBytes, sizeof...(Params)});
}

}  // namespace reprise::simt
