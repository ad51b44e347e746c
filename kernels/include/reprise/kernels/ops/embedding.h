// embedding_forward: y[m, :] = table[ids[m], :]. The table is frozen, so there is no backward.
// y may not overlap ids or the table.
#pragma once

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct EmbeddingForwardArgs {
  ConstView ids;    // I32 [M], each in [0, V); the caller has checked them
  ConstView table;  // F32 or BF16 [V, C]
  View y;           // F32 [M, C]
};

Support check(const EmbeddingForwardArgs& args);

}  // namespace reprise
