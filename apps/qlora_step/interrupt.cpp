#include "apps/qlora_step/interrupt.h"

#include <csignal>

namespace reprise::qlora_step {
namespace {

// The one thing a signal handler may write; there is one process, so there is one of it.
volatile std::sig_atomic_t requested = 0;

// The next signal, whichever of the two, has its default effect.
void request(int) {
  requested = 1;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

void watch_for_interrupts() {
  struct sigaction action = {};
  action.sa_handler = request;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // file operations go on
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupt_requested() { return requested != 0; }

}  // namespace reprise::qlora_step
