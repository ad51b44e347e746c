// Ctrl-C (SIGINT) and SIGTERM as a request that the training loop reads between two steps. A second
// signal ends the program at once.
#pragma once

namespace reprise::qlora_step {

void watch_for_interrupts();
bool interrupt_requested();

}  // namespace reprise::qlora_step
