// Device and pinned memory. Every allocation ends (but for the rounding to 256 bytes) at a guard
// page, and stays reserved after it was freed, so that a late access is known for what it is. Under
// AddressSanitizer the heap does both, to the byte. Fresh memory is full of 0xff: NaN in all
// floats.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "kernels/simt/runtime.h"
#include "kernels/simt/runtime_stream.h"
#include "kernels/simt/settings.h"

extern "C" void __asan_init() __attribute__((weak));

namespace reprise::simt {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;  // of cudaMalloc
// Address ranges of freed memory that are kept; a process may map about 65,000.
constexpr std::size_t kKeptFreed = 4096;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// By the start of the mapping.
std::map<const char*, Allocation>& allocations() {
  static std::map<const char*, Allocation> all;
  return all;
}
std::deque<const char*> freed;
std::size_t device_bytes = 0;
std::uint64_t allocation_count = 0;

// Forgets freed allocations whose addresses the heap has given out again.
void forget_overlapped(const char* start, std::size_t bytes) {
  auto& all = allocations();
  auto at = all.lower_bound(start);
  while (at != all.begin() && std::prev(at)->first + std::prev(at)->second.mapped_bytes > start) {
    at = std::prev(at);
  }
  while (at != all.end() && at->first < start + bytes) at = all.erase(at);
}

const char* map_memory(Allocation& allocation) {
  if (under_address_sanitizer()) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, allocation.bytes) != 0) throw std::bad_alloc();
    allocation.data = static_cast<char*>(memory);
    allocation.mapped_bytes = allocation.bytes;
    forget_overlapped(allocation.data, allocation.bytes);
    return allocation.data;
  }
  const std::size_t data_bytes = round_up(allocation.bytes, kAlignment);
  const std::size_t pages = round_up(data_bytes, kPage);
  allocation.mapped_bytes = pages + 2 * kPage;
  void* mapping = mmap(nullptr, allocation.mapped_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  char* const start = static_cast<char*>(mapping);
  mprotect(start, kPage, PROT_NONE);
  mprotect(start + kPage + pages, kPage, PROT_NONE);
  allocation.data = start + kPage + pages - data_bytes;
  return start;
}

void unmap_memory(const char* start, const Allocation& allocation) {
  if (under_address_sanitizer()) {
    std::free(allocation.data);
    return;
  }
  char* const mapping = const_cast<char*>(start);
  madvise(mapping, allocation.mapped_bytes, MADV_DONTNEED);
  mprotect(mapping, allocation.mapped_bytes, PROT_NONE);
  freed.push_back(start);
  if (freed.size() <= kKeptFreed) return;
  const char* const oldest = freed.front();
  freed.pop_front();
  munmap(const_cast<char*>(oldest), allocations().at(oldest).mapped_bytes);
  allocations().erase(oldest);
}

cudaError_t allocate(void** out, std::size_t bytes, MemoryKind kind) {
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  const std::size_t rounded = round_up(bytes, kAlignment);
  if (kind == MemoryKind::kDevice) {
    const std::size_t total = settings().memory_bytes;
    if (rounded < bytes || rounded > total || device_bytes > total - rounded) {
      return refuse(cudaErrorMemoryAllocation, std::to_string(bytes) + " bytes, " +
                                                   std::to_string(device_bytes) + " of " +
                                                   std::to_string(total) + " in use");
    }
  }
  Allocation allocation{nullptr, bytes, 0, ++allocation_count, kind, true};
  const char* const start = map_memory(allocation);
  std::memset(allocation.data, 0xff, bytes);
  if (kind == MemoryKind::kDevice) device_bytes += rounded;
  allocations()[start] = allocation;
  *out = allocation.data;
  return cudaSuccess;
}

cudaError_t release(void* memory, MemoryKind kind) {
  if (memory == nullptr) return cudaSuccess;
  const Allocation* const found = find_allocation(memory);
  if (found == nullptr || found->data != memory || !found->live || found->kind != kind) {
    return refuse(cudaErrorInvalidValue, "freed a pointer that is no live allocation of its kind");
  }
  auto at = std::prev(allocations().upper_bound(static_cast<const char*>(memory)));
  at->second.live = false;
  if (kind == MemoryKind::kDevice) device_bytes -= round_up(at->second.bytes, kAlignment);
  unmap_memory(at->first, at->second);
  return cudaSuccess;
}

}  // namespace

bool under_address_sanitizer() { return __asan_init != nullptr; }

std::size_t live_device_bytes() { return device_bytes; }

const Allocation* find_allocation(const void* address) {
  const auto& all = allocations();
  auto at = all.upper_bound(static_cast<const char*>(address));
  if (at == all.begin()) return nullptr;
  --at;
  const bool within = static_cast<const char*>(address) < at->first + at->second.mapped_bytes;
  return within ? &at->second : nullptr;
}

bool inside(const void* address, std::size_t bytes, MemoryKind kind) {
  const Allocation* const found = find_allocation(address);
  const char* const first = static_cast<const char*>(address);
  return found != nullptr && found->live && found->kind == kind && first >= found->data &&
         bytes <= found->bytes &&
         first - found->data <= static_cast<std::ptrdiff_t>(found->bytes - bytes);
}

std::string describe_address(const Allocation& allocation, const void* address) {
  return "byte " + std::to_string(static_cast<const char*>(address) - allocation.data) +
         " of allocation " + std::to_string(allocation.number) + " (" +
         std::to_string(allocation.bytes) + " bytes" + (allocation.live ? ")" : ", freed)");
}

}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return entry([&] {
    const cudaError_t status = refuse_in_capture("cudaMalloc");
    return status == cudaSuccess ? allocate(memory, bytes, MemoryKind::kDevice) : status;
  });
}

cudaError_t cudaFree(void* memory) {
  return entry([&] {
    cudaError_t status = refuse_in_capture("cudaFree");
    if (status == cudaSuccess) status = drain_all();
    return status == cudaSuccess ? release(memory, MemoryKind::kDevice) : status;
  });
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return entry([&] {
    const cudaError_t status = refuse_in_capture("cudaMallocHost");
    return status == cudaSuccess ? allocate(memory, bytes, MemoryKind::kPinned) : status;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return entry([&] {
    cudaError_t status = refuse_in_capture("cudaFreeHost");
    if (status == cudaSuccess) status = drain_all();
    return status == cudaSuccess ? release(memory, MemoryKind::kPinned) : status;
  });
}
}
