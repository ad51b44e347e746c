// What a program asks of operator new while it is watched. The file that goes with this replaces
// the operator, as the standard allows, so it is a source of those test programs alone that look.
#pragma once

#include <cstddef>

namespace reprise::test {

struct CountedAllocations {
  std::size_t count = 0;
  std::size_t bytes = 0;    // of all together
  std::size_t largest = 0;  // of one
};

// Starts from zero.
void start_counting_allocations();
CountedAllocations stop_counting_allocations();

}  // namespace reprise::test
