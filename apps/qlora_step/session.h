// One run of the program from its options to its exit code.
#pragma once

#include <iosfwd>

#include "apps/qlora_step/options.h"

namespace reprise::qlora_step {

// Results go to `out`, warnings to `warnings`. Throws the types of reprise/kernels/error.h.
int run(const Options& options, std::ostream& out, std::ostream& warnings);

}  // namespace reprise::qlora_step
