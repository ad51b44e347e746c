// Turns an invalid memory access of a kernel into a failed launch. AddressSanitizer reports such an
// access with more detail, so there its own handler stays.
#include <signal.h>

#include <array>

#include "kernels/simt/block_runner.h"
#include "kernels/simt/runtime.h"

namespace reprise::simt {
namespace {

struct sigaction before_segv;
struct sigaction before_bus;
stack_t before_stack;
// The handler cannot run on the stack that may just have run over.
std::array<char, 65536> handler_stack;

void on_fault(int signal, siginfo_t* info, void*) {
  BlockRunner* const block = running_block();
  if (block == nullptr) {  // not a kernel's: what would have happened without us happens now
    sigaction(signal, signal == SIGSEGV ? &before_segv : &before_bus, nullptr);
    return;
  }
  const void* const address = info->si_addr;
  if (block->stack_overrun(address)) block->abandon("the thread's stack has run over");
  const Allocation* const found = find_allocation(address);
  block->abandon("illegal access of " + (found == nullptr
                                             ? std::string("memory that is no allocation")
                                             : describe_address(*found, address)));
}

}  // namespace

FaultGuard::FaultGuard() {
  if (under_address_sanitizer()) return;
  stack_t stack{};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  sigaltstack(&stack, &before_stack);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  // The handler jumps to the host's stack and never returns, so the signal must not stay blocked.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before_segv);
  sigaction(SIGBUS, &action, &before_bus);
}

FaultGuard::~FaultGuard() {
  if (under_address_sanitizer()) return;
  sigaction(SIGSEGV, &before_segv, nullptr);
  sigaction(SIGBUS, &before_bus, nullptr);
  sigaltstack(&before_stack, nullptr);
}

}  // namespace reprise::simt
