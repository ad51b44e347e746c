// Stacks, jumps and their announcement to AddressSanitizer.
#include "kernels/simt/fiber.h"

#include <sys/mman.h>

#include <new>

// Present only where AddressSanitizer is linked in.
extern "C" {
void __sanitizer_start_switch_fiber(void** frames, const void* bottom, std::size_t bytes)
    __attribute__((weak));
void __sanitizer_finish_switch_fiber(void* frames, const void** old_bottom, std::size_t* old_bytes)
    __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void* address, std::size_t bytes)
    __attribute__((weak));
}

namespace reprise::simt {
namespace {

namespace context = boost::context::detail;

// Kernels keep arrays of a few hundred bytes; sanitizers multiply that several times.
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
// Wider than any frame, which might step over a single page.
constexpr std::size_t kGuardBytes = std::size_t{64} << 10;

// Whom the running fiber was entered from. One is enough: launches run one at a time.
Fiber* left = nullptr;

}  // namespace

Fiber::Fiber(Main main) : main_(main) {
  void* mapping = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char*>(mapping);
  mprotect(mapping_, kGuardBytes, PROT_NONE);
  stack_ = mapping_ + kGuardBytes;
  stack_bytes_ = kStackBytes;
  restart();
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
  if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(stack_, kStackBytes);
  munmap(mapping_, kGuardBytes + kStackBytes);
}

void Fiber::restart() {
  // What an abandoned kernel left poisoned would be reported in the next one.
  if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(stack_, kStackBytes);
  context_ = context::make_fcontext(mapping_ + kGuardBytes + kStackBytes, kStackBytes, main_);
  asan_frames_ = nullptr;
}

void Fiber::switch_to(Fiber& next) {
  left = this;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&asan_frames_, next.stack_, next.stack_bytes_);
  }
  const context::transfer_t from = context::jump_fcontext(next.context_, this);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(asan_frames_, &left->stack_, &left->stack_bytes_);
  }
  static_cast<Fiber*>(from.data)->context_ = from.fctx;
}

void Fiber::enter(context::transfer_t from) {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &left->stack_, &left->stack_bytes_);
  }
  static_cast<Fiber*>(from.data)->context_ = from.fctx;
}

bool Fiber::overrun(const void* address) const {
  const char* byte = static_cast<const char*>(address);
  return mapping_ != nullptr && byte >= mapping_ && byte < mapping_ + kGuardBytes;
}

}  // namespace reprise::simt
