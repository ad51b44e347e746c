// A stack of its own and the context to go on with. Switches are direct jumps of Boost.Context
// (about 100 ns with everything around them), announced to AddressSanitizer where it is linked in.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace reprise::simt {

class Fiber {
 public:
  using Main = void (*)(boost::context::detail::transfer_t);
  // The thread that runs a launch, as a fiber to return to: it has a stack already.
  Fiber() = default;
  // A fresh stack below a guard page; `main` starts at the first switch and never returns.
  explicit Fiber(Main main);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `*this` and continues `next`; returns when somebody switches back.
  void switch_to(Fiber& next);
  // The first thing `main` does: notes where the fiber it was entered from can be continued.
  static void enter(boost::context::detail::transfer_t from);
  // Forgets what ran here, so that the next switch starts `main` again.
  void restart();
  // True where the address lies in the guard page, so the stack has run over.
  bool overrun(const void* address) const;

 private:
  Main main_ = nullptr;
  boost::context::detail::fcontext_t context_ = nullptr;
  char* mapping_ = nullptr;
  const void* stack_ = nullptr;  // lowest address; of the host thread known once it was left
  std::size_t stack_bytes_ = 0;
  void* asan_frames_ = nullptr;
};

}  // namespace reprise::simt
