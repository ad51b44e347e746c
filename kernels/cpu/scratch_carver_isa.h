// Cutting an op's scratch into pieces. The constructor of a struct of pointers takes them in order;
// on no memory it gives null pointers and the size that is needed, so that scratch_bytes and run
// cannot disagree.
#pragma once

#include <cstdint>

namespace reprise::cpu::REPRISE_ISA {

// Hands out pieces of a scratch area, 64-byte aligned.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(std::int64_t count) {
    char* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  std::int64_t used() const { return used_; }

 private:
  char* base_;
  std::int64_t used_ = 0;
};

}  // namespace reprise::cpu::REPRISE_ISA
