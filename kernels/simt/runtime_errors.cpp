// Error codes: the last one of each thread, the one that a failed launch leaves behind, their
// texts.
#include <array>

#include "kernels/simt/kernel_table.h"
#include "kernels/simt/runtime.h"

namespace reprise::simt {
namespace {

struct ErrorText {
  cudaError_t status;
  const char* name;
  const char* text;
};

constexpr std::array kErrorTexts = {
    ErrorText{cudaSuccess, "cudaSuccess", "no error"},
    ErrorText{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    ErrorText{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    ErrorText{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
              "invalid launch configuration"},
    ErrorText{cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
              "invalid device function"},
    ErrorText{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    ErrorText{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
              "invalid resource handle"},
    ErrorText{cudaErrorIllegalState, "cudaErrorIllegalState",
              "the operation cannot be performed in the present state"},
    ErrorText{cudaErrorNotReady, "cudaErrorNotReady", "work is not finished"},
    ErrorText{cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "illegal memory access"},
    ErrorText{cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "launch failure"},
    ErrorText{cudaErrorNotSupported, "cudaErrorNotSupported", "not supported"},
    ErrorText{cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
              "not permitted while a stream is captured"},
    ErrorText{cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
              "the capture was invalidated by an earlier error"},
    ErrorText{cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
              "this would merge two captures"},
    ErrorText{cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
              "the capture began on another stream"},
    ErrorText{cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
              "captured work was not joined to the stream where the capture began"},
    ErrorText{cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
              "a dependency would cross the boundary of the capture"},
    ErrorText{cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
              "the legacy stream would depend on a capture"},
    ErrorText{cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
              "the event was last recorded in a capture"},
    ErrorText{cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
              "the capture began on another thread"},
    ErrorText{cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
              "the graph cannot be updated in place"},
    ErrorText{cudaErrorOperatingSystem, "cudaErrorOperatingSystem", "operating system call failed"},
    ErrorText{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText& find(cudaError_t status) {
  for (const ErrorText& entry : kErrorTexts) {
    if (entry.status == status) return entry;
  }
  return kErrorTexts.back();
}

thread_local cudaError_t last = cudaSuccess;
// The code that `detail` is about.
cudaError_t detailed = cudaSuccess;

}  // namespace

DeviceState& device_state() {
  static DeviceState state;
  return state;
}

cudaError_t refuse(cudaError_t status, const std::string& why) {
  device_state().detail = why;
  detailed = status;
  return status;
}

cudaError_t note_last(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady) last = status;
  return status;
}

std::string failure_detail() {
  const std::lock_guard lock(device_state().mutex);
  return device_state().detail;
}

}  // namespace reprise::simt

using namespace reprise::simt;

extern "C" {

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(device_state().mutex);
  const cudaError_t sticky = device_state().sticky;
  const cudaError_t status = sticky != cudaSuccess ? sticky : last;
  last = cudaSuccess;
  return status;
}

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(device_state().mutex);
  const cudaError_t sticky = device_state().sticky;
  return sticky != cudaSuccess ? sticky : last;
}

const char* cudaGetErrorName(cudaError_t error) { return find(error).name; }

// NOTE: where more is known of the latest failure with this code, its text says so, since callers
// print this text anyway.
const char* cudaGetErrorString(cudaError_t error) {
  thread_local std::string text;
  const std::lock_guard lock(device_state().mutex);
  text = find(error).text;
  if (error == detailed && error != cudaSuccess && !device_state().detail.empty()) {
    text += ": " + device_state().detail;
  }
  return text.c_str();
}
}
