#include "tests/cuda/mirror.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/cuda_check.h"

namespace reprise::test {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::byte kGuard{0xa5};

}  // namespace

Mirror::~Mirror() {
  for (auto& [address, copy] : copies_) cudaFree(copy.memory);
}

// Operands that are only read get memory of exactly their size, whose end the emulator watches.
void* Mirror::copy_of(const void* address, std::int64_t bytes, void* written) {
  if (address == nullptr) return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  Copy& copy = copies_[address];
  if (copy.memory != nullptr && (copy.written != nullptr || written == nullptr)) {
    require(size == copy.bytes, "operands share an address but no size");
    return copy.memory + copy.guard;
  }
  // An operand that is read under one name and written under another: written is what counts.
  require(copy.memory == nullptr, "name written operands before those that share their memory");
  copy = {nullptr, size, written == nullptr ? 0 : kGuardBytes, written};
  void* memory = nullptr;
  cuda_check(cudaMalloc(&memory, size + 2 * copy.guard), "cudaMalloc");
  copy.memory = static_cast<std::byte*>(memory);
  std::vector<std::byte> image(size + 2 * copy.guard, kGuard);
  std::memcpy(image.data() + copy.guard, address, size);
  cuda_check(cudaMemcpy(memory, image.data(), image.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  return copy.memory + copy.guard;
}

void Mirror::operator()(ConstView& view) { view.data = copy_of(view.data, view.bytes(), nullptr); }
void Mirror::operator()(View& view) { view.data = copy_of(view.data, view.bytes(), view.data); }
void Mirror::operator()(Scratch& scratch) {
  if (scratch.bytes > 0) scratch.data = copy_of(scratch.data, scratch.bytes, scratch.data);
}
void Mirror::operator()(const StepParams*& params) {
  params = static_cast<const StepParams*>(copy_of(params, sizeof(StepParams), nullptr));
}
void Mirror::read_only(const void*& address, std::int64_t bytes) {
  address = copy_of(address, bytes, nullptr);
}

bool Mirror::bring_back() {
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  bool intact = true;
  for (auto& [address, copy] : copies_) {
    if (copy.written == nullptr) continue;
    std::vector<std::byte> image(copy.bytes + 2 * copy.guard);
    cuda_check(cudaMemcpy(image.data(), copy.memory, image.size(), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    std::memcpy(copy.written, image.data() + copy.guard, copy.bytes);
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto end = image.begin() + static_cast<std::ptrdiff_t>(copy.guard + copy.bytes);
    intact = intact && std::all_of(image.begin(), image.begin() + kGuardBytes, is_guard) &&
             std::all_of(end, image.end(), is_guard);
  }
  return intact;
}

}  // namespace reprise::test
