// Gradients of an adapter. grad_u is a product with few columns; grad_a and grad_b reduce over the
// tokens, with the few rows of the adapter on the left and the activations as panels.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/low_rank_isa.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Scratch: grad_y as an operand, dropout(x) in FP32, the transposes of grad_u and u, then the
// workers'.
template <class Operand>
struct Pieces {
  void *grad_y = nullptr, *dropped = nullptr, *grad_u = nullptr, *u = nullptr, *workers = nullptr;
  std::int64_t bytes = 0;

  Pieces(const LoraBackwardArgs& args, void* scratch, int threads) {
    const std::int64_t m = args.grad_y.dims[0], rank = args.a.dims[0];
    Carver carver(scratch);
    if (!lies_ready<Operand>(args.grad_y)) {
      grad_y = carver.take<char>(operand_bytes<Operand>(m, args.grad_y.dims[1]));
    }
    if (args.dropout.probability > 0) {
      dropped = carver.take<char>(operand_bytes<Fp32Operand>(m, args.a.dims[1]));
    }
    grad_u = carver.take<char>(operand_bytes<Operand>(rank, m));
    u = carver.take<char>(operand_bytes<Operand>(rank, m));
    workers = carver.take<char>(threads * WorkerMemory<Operand>::bytes());
    bytes = carver.used();
  }
};

// sums[R, columns] = left[R, M] . right[M, columns], given to write(tile).
template <class Operand, class Write>
void reduce_over_tokens(const OperandRows<Operand>& left, std::int64_t rank, const ConstView& right,
                        void* workers, ThreadPool& pool, Write&& write) {
  const Tiling tiling(rank, right.dims[1], pool.threads());
  for_each_tile<Operand>(
      tiling, workers, pool, [&](const Tile& tile, const WorkerMemory<Operand>& memory) {
        add_product(
            tile, left, right.dims[0], tile.sums, OutputMode::kOverwrite, memory.panel,
            [&](std::int64_t begin, std::int64_t end, auto* panel) {
              pack_weight_columns<Operand>({right, tile.column, tile.width, begin, end}, panel);
            });
        write(tile);
      });
}

// Element (r, n) of a tile becomes element (n, r) of grad_b.
void write_transposed(const Tile& tile, const View& grad_b, OutputMode mode) {
  const std::int64_t rank = grad_b.dims[1];
  for (std::int64_t j = 0; j < tile.width; ++j) {
    float* const to = grad_b.as<float>() + (tile.column + j) * rank + tile.row;
    for (std::int64_t r = 0; r < tile.height; ++r) {
      const float sum = tile.sums[r * kPanel + j];
      to[r] = mode == OutputMode::kAccumulate ? to[r] + sum : sum;
    }
  }
}

template <class Operand>
void backward(const LoraBackwardArgs& args, ThreadPool& pool) {
  const Pieces<Operand> pieces(args, args.scratch.data, pool.threads());
  const std::int64_t n = args.grad_y.dims[1], rank = args.a.dims[0];

  const OperandRows<Operand> grad_y = operand_rows<Operand>(args.grad_y, pieces.grad_y, pool);
  low_rank_product<Operand>(
      grad_y, n, args.scale, args.grad_u, pieces.workers, pool,
      [&](std::int64_t column, std::int64_t width, std::int64_t begin, std::int64_t end,
          auto* panel) {
        pack_weight_columns<Operand>({args.b, column, width, begin, end}, panel);
      });

  ConstView x = args.x;
  if (args.dropout.probability > 0) {
    const OperandRows<Fp32Operand> dropped =
        dropped_rows<Fp32Operand>(args.x, args.dropout, pieces.dropped, pool);
    x = {dropped.data, DType::kF32, args.x.dims};
  }
  const OperandRows<Operand> grad_u =
      transposed_rows<Operand>(args.grad_u, 1.0f, pieces.grad_u, pool);
  reduce_over_tokens<Operand>(grad_u, rank, x, pieces.workers, pool, [&](const Tile& tile) {
    write_tile(tile, args.grad_a, nullptr, args.mode);
  });
  const OperandRows<Operand> u = transposed_rows<Operand>(args.u, args.scale, pieces.u, pool);
  reduce_over_tokens<Operand>(u, rank, args.grad_y, pieces.workers, pool, [&](const Tile& tile) {
    write_transposed(tile, args.grad_b, args.mode);
  });
}

void run(const LoraBackwardArgs& args, const Execution& execution) {
  with_operand(args.compute,
               [&](auto operand) { backward<decltype(operand)>(args, *execution.pool); });
}

std::int64_t scratch_bytes(const LoraBackwardArgs& args, int threads) {
  return with_operand(args.compute, [&](auto operand) {
    return Pieces<decltype(operand)>(args, nullptr, threads).bytes;
  });
}

}  // namespace

void append_lora(OpTable& table) {
  table.lora_backward.push_back({"cpu." REPRISE_ISA_NAME ".tiled", check, scratch_bytes, run});
}

}  // namespace reprise::cpu::REPRISE_ISA
