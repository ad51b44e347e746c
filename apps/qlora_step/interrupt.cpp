#include "apps/qlora_step/interrupt.h"

#include <csignal>

namespace reprise::qlora_step {
namespace {

// The one thing a signal handler may write; there is one process, so there is one of it.
volatile std::sig_atomic_t requested = 0;

void request(int) { requested = 1; }

}  // namespace

void watch_for_interrupts() {
  struct sigaction action = {};
  action.sa_handler = request;
  sigemptyset(&action.sa_mask);
  // Reset: the next signal has its default effect. Restart: file operations go on.
  action.sa_flags = static_cast<int>(SA_RESETHAND | static_cast<unsigned>(SA_RESTART));
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupt_requested() { return requested != 0; }

}  // namespace reprise::qlora_step
