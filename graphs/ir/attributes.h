// The constants of a node besides its operands, by name: printed with the graph, and part of what a
// capture depends on.
#pragma once

#include <vector>

#include "reprise/graphs/graph.h"

namespace reprise {

struct Attribute {
  const char* name;  // "eps"
  double value;      // enumerators by their number
};

std::vector<Attribute> attributes(const Op& op);

}  // namespace reprise
