// Copies and fills. Pageable memory is copied to the device when the call is made and from it
// before the call returns, pinned memory whenever the stream gets to it: both as CUDA documents.
#include <cstring>

#include "kernels/simt/runtime_stream.h"

namespace reprise::simt {
namespace {

bool from_device(cudaMemcpyKind kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
}
bool to_device(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}

cudaError_t check_device_range(cudaError_t status, const char* what, const void* address,
                               std::size_t bytes) {
  if (bytes == 0 || inside(address, bytes, MemoryKind::kDevice)) return cudaSuccess;
  const Allocation* const found = find_allocation(address);
  const std::string where =
      found == nullptr ? std::string("no device memory") : describe_address(*found, address);
  return refuse(status, std::string(what) + ", " + std::to_string(bytes) + " bytes: " + where);
}

cudaError_t check_host_side(const char* what, const void* address) {
  const Allocation* const found = find_allocation(address);
  // Where memory was freed the host may have some of its own by now.
  if (found == nullptr || !found->live || found->kind == MemoryKind::kPinned) return cudaSuccess;
  return refuse(cudaErrorInvalidValue,
                std::string(what) + " of the host: " + describe_address(*found, address));
}

cudaError_t check_copy(const CopyWork& work, cudaError_t status) {
  const auto check = [&](bool on_device, const char* what, const void* address) {
    if (on_device) return check_device_range(status, what, address, work.bytes);
    return check_host_side(what, address);
  };
  const cudaError_t source = check(from_device(work.kind), "source of a copy", work.from);
  if (source != cudaSuccess) return source;
  return check(to_device(work.kind), "destination of a copy", work.to);
}

bool is_device(const void* address) {
  const Allocation* const found = find_allocation(address);
  return found != nullptr && found->kind == MemoryKind::kDevice;
}

cudaMemcpyKind deduce(cudaMemcpyKind kind, const void* to, const void* from) {
  if (kind != cudaMemcpyDefault) return kind;
  if (is_device(from)) return is_device(to) ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
  return is_device(to) ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
}

bool pageable(const CopyWork& work) {
  if (!to_device(work.kind) && !inside(work.to, 1, MemoryKind::kPinned)) return true;
  return !from_device(work.kind) && !inside(work.from, 1, MemoryKind::kPinned);
}

// The copy that a stream gets: of pageable memory as it is now.
cudaError_t enqueue_copy(const std::shared_ptr<CUstream_st>& stream, const CopyWork& work) {
  if (work.kind != cudaMemcpyHostToDevice || inside(work.from, 1, MemoryKind::kPinned)) {
    return enqueue(stream, [work] { return run_copy(work); });
  }
  const char* const first = static_cast<const char*>(work.from);
  const auto staged = std::make_shared<std::vector<char>>(first, first + work.bytes);
  return enqueue(stream, [work, staged] {
    CopyWork copy = work;
    copy.from = staged->data();
    return run_copy(copy);
  });
}

cudaError_t copy_async(const CopyWork& work, cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const cudaError_t status = check_copy(work, cudaErrorInvalidValue);
  if (status != cudaSuccess) return status;
  if (stream->capture) {
    if (pageable(work) && stream->capture->valid) {
      return invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported,
                        "a captured copy of pageable host memory");
    }
    return capture_work(*stream, work);
  }
  if (!pageable(work)) return submit(handle, work);
  if (stream == find_stream(nullptr)) {
    const cudaError_t allowed = refuse_legacy_use("a copy on the legacy stream");
    if (allowed != cudaSuccess) return allowed;
  }
  const cudaError_t queued = enqueue_copy(stream, work);
  if (queued != cudaSuccess || to_device(work.kind)) return queued;
  return drain(*stream, stream->enqueued);
}

cudaError_t copy_now(const CopyWork& work) {
  cudaError_t status = refuse_legacy_use("cudaMemcpy");
  if (status == cudaSuccess) status = refuse_in_capture("cudaMemcpy");
  if (status == cudaSuccess) status = check_copy(work, cudaErrorInvalidValue);
  if (status != cudaSuccess) return status;
  const auto legacy = find_stream(nullptr);
  status = enqueue(legacy, [work] { return run_copy(work); });
  return status == cudaSuccess ? drain(*legacy, legacy->enqueued) : status;
}

}  // namespace

cudaError_t run_copy(const CopyWork& work) {
  const cudaError_t status = check_copy(work, cudaErrorIllegalAddress);
  if (status == cudaSuccess && work.bytes != 0) std::memmove(work.to, work.from, work.bytes);
  return status;
}

cudaError_t run_fill(const FillWork& work) {
  const cudaError_t status =
      check_device_range(cudaErrorIllegalAddress, "destination of a fill", work.to, work.bytes);
  if (status == cudaSuccess && work.bytes != 0) std::memset(work.to, work.value, work.bytes);
  return status;
}

}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return entry([&] { return copy_async({to, from, bytes, deduce(kind, to, from)}, stream); });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return entry([&] { return copy_now({to, from, bytes, deduce(kind, to, from)}); });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return entry([&] {
    const cudaError_t status =
        check_device_range(cudaErrorInvalidValue, "destination of a fill", to, bytes);
    return status == cudaSuccess ? submit(stream, FillWork{to, value, bytes}) : status;
  });
}
}
