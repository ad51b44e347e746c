// How reports name places and operations.
#pragma once

#include <string>

#include "kernels/simt/block.h"

namespace reprise::simt {

std::string place_name(Place where);
bool same_place(Place a, Place b);
const char* op_name(WarpOp op);

}  // namespace reprise::simt
