// The whole table of CUDA's implementations.
#include "reprise/kernels/cuda_ops.h"

#include "kernels/cuda/tables.h"

namespace reprise {

OpTable cuda_ops() {
  OpTable table;
  cuda::add_linear_nf4(table);
  cuda::add_lora(table);
  cuda::add_attention(table);
  cuda::add_norm(table);
  cuda::add_pointwise(table);
  cuda::add_cross_entropy(table);
  cuda::add_optimizer(table);
  return table;
}

}  // namespace reprise
