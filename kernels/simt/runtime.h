// What the entry points of the emulated CUDA runtime share: the device's state, its memory, and the
// frame that every entry point runs in.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <string>

namespace reprise::simt {

// One device, one lock: calls from several threads follow each other.
struct DeviceState {
  std::recursive_mutex mutex;
  cudaError_t sticky = cudaSuccess;  // set by failed work; every later call returns it
  std::string detail;
};
DeviceState& device_state();

// Notes why a call fails, for failure_detail(), and returns the code.
cudaError_t refuse(cudaError_t status, const std::string& why);
// What cudaGetLastError will say.
cudaError_t note_last(cudaError_t status);

// Every entry point: under the lock, refused after a failure of the device, and without exceptions.
template <class Body>
cudaError_t entry(Body body) {
  DeviceState& state = device_state();
  const std::lock_guard lock(state.mutex);
  if (state.sticky != cudaSuccess) return note_last(state.sticky);
  try {
    return note_last(body());
  } catch (const std::bad_alloc&) {
    return note_last(refuse(cudaErrorMemoryAllocation, "the host is out of memory"));
  } catch (const std::exception& error) {
    return note_last(refuse(cudaErrorUnknown, error.what()));
  }
}

enum class MemoryKind : std::uint8_t { kDevice, kPinned };

struct Allocation {
  char* data;
  std::size_t bytes;
  std::size_t mapped_bytes;  // with the guard pages
  std::uint64_t number;      // in the order of allocation, for reports
  MemoryKind kind;
  bool live;
};

// The allocation whose memory or guard pages hold the address, also a freed one; null for none.
const Allocation* find_allocation(const void* address);
// Whether all of the bytes lie in one live allocation of the kind.
bool inside(const void* address, std::size_t bytes, MemoryKind kind);
// "byte 12 of allocation 3 (64 bytes, freed)"
std::string describe_address(const Allocation& allocation, const void* address);
bool under_address_sanitizer();

// While it lives, an invalid access of the running kernel ends that kernel instead of the process.
class FaultGuard {
 public:
  FaultGuard();
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
};

}  // namespace reprise::simt
