// Launches of the vocabulary head and its loss.
#include "kernels/cuda/cross_entropy.cuh"

#include <algorithm>

#include "kernels/cuda/product_launch.h"
#include "kernels/cuda/tables.h"

namespace reprise::cuda {
namespace {

// Rows whose logits are held at a time: about 32 MiB of them, whole tiles, at least one tile.
std::int64_t chunk_rows(const CrossEntropyArgs& args) {
  const std::int64_t row_bytes = args.weight.dims[0] * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t tiles = std::max<std::int64_t>((32 << 20) / (row_bytes * kTile), 1);
  return std::min(args.x.dims[0], tiles * kTile);
}

std::int64_t losses_bytes(const CrossEntropyArgs& args) {
  return args.x.dims[0] * static_cast<std::int64_t>(sizeof(double));
}

std::int64_t cross_entropy_scratch(const CrossEntropyArgs& args, int) {
  return losses_bytes(args) +
         chunk_rows(args) * args.weight.dims[0] * static_cast<std::int64_t>(sizeof(float));
}

// Rows `first` ... `first + rows - 1` of a matrix.
ConstView rows_of(const ConstView& matrix, std::int64_t first, std::int64_t rows) {
  const auto* data = static_cast<const std::byte*>(matrix.data);
  return {
      data + first * matrix.dims[1] * size_of(matrix.dtype), matrix.dtype, {rows, matrix.dims[1]}};
}

void run_chunk(const CrossEntropyArgs& args, std::int64_t first, std::int64_t rows,
               const Execution& execution) {
  const std::int64_t v_count = args.weight.dims[0], c_count = args.weight.dims[1];
  auto* const losses = static_cast<double*>(args.scratch.data);
  auto* const logits = reinterpret_cast<float*>(losses + args.x.dims[0]);
  const Labels labels = {args.labels.as<std::int32_t>() + first};
  const LogitsJob logits_job = {.rows = rows,
                                .columns = v_count,
                                .steps = c_count,
                                .left = operand(rows_of(args.x, first, rows), args.compute),
                                .right = transposed(args.weight, args.compute),
                                .labels = labels,
                                .logits = logits};
  launch_product("cross_entropy_logits_plain", logits_job, execution);
  const Softmax softmax = {.columns = v_count,
                           .logits = logits,
                           .labels = labels,
                           .losses = losses + first,
                           .nll = args.nll.present() ? args.nll.as<float>() + first : nullptr};
  launch("cross_entropy_softmax_plain", cross_entropy_softmax,
         row_of_blocks(rows, kReduceThreads, execution), softmax);
  if (!args.grad_x.present()) return;
  const HeadGradXJob grad_job = {.rows = rows,
                                 .columns = c_count,
                                 .steps = v_count,
                                 .left = {logits, v_count, labels},
                                 .right = operand(args.weight, args.compute),
                                 .params = args.params,
                                 .grad_x = args.grad_x.as<float>() + first * c_count};
  launch_product("cross_entropy_grad_x_plain", grad_job, execution);
}

void cross_entropy(const CrossEntropyArgs& args, const Execution& execution) {
  const std::int64_t m_count = args.x.dims[0], chunk = chunk_rows(args);
  for (std::int64_t first = 0; first < m_count; first += chunk) {
    run_chunk(args, first, std::min(chunk, m_count - first), execution);
  }
  launch("cross_entropy_loss_plain", cross_entropy_loss, row_of_blocks(1, 1, execution),
         static_cast<const double*>(args.scratch.data), m_count, args.params,
         args.loss.as<float>());
}

void lm_head(const LmHeadArgs& args, const Execution& execution) {
  const LmHeadJob job = {.rows = args.x.dims[0],
                         .columns = args.weight.dims[0],
                         .steps = args.weight.dims[1],
                         .left = operand(args.x, args.compute),
                         .right = transposed(args.weight, args.compute),
                         .logits = args.logits.as<float>()};
  launch_product("lm_head_plain", job, execution);
}

}  // namespace

void add_cross_entropy(OpTable& table) {
  table.cross_entropy.push_back({kPlain, check, cross_entropy_scratch, cross_entropy});
  table.lm_head.push_back({kPlain, check, nullptr, lm_head});
}

}  // namespace reprise::cuda
