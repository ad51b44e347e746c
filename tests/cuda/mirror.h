// Copies of an op's operands in the memory of the device, so that a test written for host memory
// runs there. Operands with the same address share a copy. Written ones lie between guard bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "reprise/kernels/step_params.h"
#include "reprise/kernels/view.h"

namespace reprise::test {

class Mirror {
 public:
  Mirror() = default;
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Each replaces the host's address by that of the copy. A null address stays.
  void operator()(ConstView& view);
  void operator()(View& view);
  void operator()(Scratch& scratch);
  void operator()(const StepParams*& params);
  void read_only(const void*& address, std::int64_t bytes);

  // Waits for the device and copies what may have been written to the host. Whether all guard bytes
  // are as they were.
  bool bring_back();

 private:
  struct Copy {
    std::byte* memory = nullptr;  // of the device
    std::size_t bytes = 0;
    std::size_t guard = 0;    // bytes before and after
    void* written = nullptr;  // where to bring it back; null: only read
  };
  void* copy_of(const void* address, std::int64_t bytes, void* written);

  std::map<const void*, Copy> copies_;
};

}  // namespace reprise::test
