// The whole table of plain implementations.
#include "kernels/reference/tables.h"

namespace reprise {

OpTable reference_ops() {
  OpTable table;
  reference::add_linear(table);
  reference::add_attention(table);
  reference::add_norm(table);
  reference::add_pointwise(table);
  reference::add_loss(table);
  reference::add_update(table);
  return table;
}

}  // namespace reprise
