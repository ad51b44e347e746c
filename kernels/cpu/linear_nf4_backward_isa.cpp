// The gradient of the frozen linear layer's input: panels of 64 inputs, decoded from NF4 row by row
// of the weight and used for all rows of grad_y; the adapter's share is added to the same sums.
#include "kernels/cpu/low_rank_isa.h"
#include "kernels/cpu/nf4_panel_isa.h"
#include "reprise/kernels/op_table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Scratch: grad_y and grad_u as operands, then the workers'.
template <class Operand>
struct Pieces {
  void *grad_y = nullptr, *grad_u = nullptr, *workers = nullptr;
  std::int64_t bytes = 0;

  Pieces(const LinearNf4BackwardArgs& args, void* scratch, int threads) {
    const std::int64_t m = args.grad_y.dims[0];
    Carver carver(scratch);
    if (!lies_ready<Operand>(args.grad_y)) {
      grad_y = carver.take<char>(operand_bytes<Operand>(m, args.weight.n));
    }
    if (args.lora.a.present()) {
      grad_u = carver.take<char>(operand_bytes<Operand>(m, args.lora.a.dims[0]));
    }
    workers = carver.take<char>(threads * WorkerMemory<Operand>::bytes());
    bytes = carver.used();
  }
};

// sums += mask * share, element (m, k) of the mask having index m * K + k.
void add_masked(const Tile& tile, const float* share, const Dropout& dropout, std::int64_t k) {
  for (std::int64_t r = 0; r < tile.height; ++r) {
    for_dropout_factors(dropout, (tile.row + r) * k + tile.column, tile.width,
                        [&](std::int64_t first, const float* factors, std::int64_t count) {
                          float* const sums = tile.sums + r * kPanel + first;
                          const float* const shares = share + r * kPanel + first;
                          for (std::int64_t j = 0; j < count; ++j)
                            sums[j] += shares[j] * factors[j];
                        });
  }
}

template <class Operand>
void backward(const LinearNf4BackwardArgs& args, ThreadPool& pool) {
  const Pieces<Operand> pieces(args, args.scratch.data, pool.threads());
  const std::int64_t m = args.grad_y.dims[0], n = args.weight.n, k = args.weight.k;
  const OperandRows<Operand> grad_y = operand_rows<Operand>(args.grad_y, pieces.grad_y, pool);
  const bool adapted = args.lora.a.present();
  const bool masked = adapted && args.lora.dropout.probability > 0;
  const std::int64_t rank = adapted ? args.lora.a.dims[0] : 0;
  OperandRows<Operand> grad_u;
  if (adapted) {
    grad_u = operand_rows<Operand>(args.lora.grad_u, pieces.grad_u, pool);
  }

  const Tiling tiling(m, k, pool.threads());
  for_each_tile<Operand>(
      tiling, pieces.workers, pool, [&](const Tile& tile, const WorkerMemory<Operand>& memory) {
        add_product(
            tile, grad_y, n, tile.sums, OutputMode::kOverwrite, memory.panel,
            [&](std::int64_t begin, std::int64_t end, auto* panel) {
              pack_nf4_columns<Operand>({args.weight, tile.column, tile.width, begin, end}, panel);
            });
        if (adapted) {
          float* const to = masked ? memory.second_sums : tile.sums;
          add_product(tile, grad_u, rank, to,
                      masked ? OutputMode::kOverwrite : OutputMode::kAccumulate, memory.panel,
                      [&](std::int64_t begin, std::int64_t end, auto* panel) {
                        pack_weight_columns<Operand>(
                            {args.lora.a, tile.column, tile.width, begin, end}, panel);
                      });
          if (masked) add_masked(tile, to, args.lora.dropout, k);
        }
        write_tile(tile, args.grad_x, nullptr, args.mode);
      });
}

void run(const LinearNf4BackwardArgs& args, const Execution& execution) {
  with_operand(args.compute,
               [&](auto operand) { backward<decltype(operand)>(args, *execution.pool); });
}

std::int64_t scratch_bytes(const LinearNf4BackwardArgs& args, int threads) {
  return with_operand(args.compute, [&](auto operand) {
    return Pieces<decltype(operand)>(args, nullptr, threads).bytes;
  });
}

}  // namespace

void append_linear_backward(OpTable& table) {
  table.linear_nf4_backward.push_back(
      {"cpu." REPRISE_ISA_NAME ".fused", check, scratch_bytes, run});
}

}  // namespace reprise::cpu::REPRISE_ISA
