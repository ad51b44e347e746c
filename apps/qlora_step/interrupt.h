// Ctrl-C (SIGINT) and SIGTERM as a request that is read between two steps of training, batches of
// an evaluation and tokens of a sample. A second signal ends the program at once.
#pragma once

namespace reprise::qlora_step {

void watch_for_interrupts();
bool interrupt_requested();

}  // namespace reprise::qlora_step
