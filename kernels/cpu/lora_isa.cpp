// Gradients of an adapter. grad_u is a product with few columns; grad_a and grad_b reduce over the
// tokens, with the few rows of the adapter on the left and the activations as panels.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/low_rank_isa.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Scratch: grad_y as an operand, dropout(x) in FP32, the transposes of grad_u and u, then the
// workers'.
template <class Operand>
struct Layout {
  std::int64_t grad_y = 0, dropped = 0, grad_u = 0, u = 0, workers = 0, bytes = 0;

  Layout(const LoraBackwardArgs& args, int threads) {
    const std::int64_t m = args.grad_y.dims[0], rank = args.a.dims[0];
    if (!lies_ready<Operand>(args.grad_y)) {
      take(grad_y, operand_bytes<Operand>(m, args.grad_y.dims[1]));
    }
    if (args.dropout.probability > 0) take(dropped, operand_bytes<Fp32Operand>(m, args.a.dims[1]));
    take(grad_u, operand_bytes<Operand>(rank, m));
    take(u, operand_bytes<Operand>(rank, m));
    take(workers, threads * WorkerMemory<Operand>::bytes());
  }

 private:
  void take(std::int64_t& offset, std::int64_t size) {
    offset = bytes;
    bytes += size;
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
  const Layout<Operand> layout(args, pool.threads());
  auto* const scratch = static_cast<char*>(args.scratch.data);
  void* const workers = scratch + layout.workers;
  const std::int64_t n = args.grad_y.dims[1], rank = args.a.dims[0];

  const OperandRows<Operand> grad_y =
      operand_rows<Operand>(args.grad_y, scratch + layout.grad_y, pool);
  low_rank_product<Operand>(
      grad_y, n, args.scale, args.grad_u, workers, pool,
      [&](std::int64_t column, std::int64_t width, std::int64_t begin, std::int64_t end,
          auto* panel) {
        pack_weight_columns<Operand>({args.b, column, width, begin, end}, panel);
      });

  ConstView x = args.x;
  if (args.dropout.probability > 0) {
    const OperandRows<Fp32Operand> dropped =
        dropped_rows<Fp32Operand>(args.x, args.dropout, scratch + layout.dropped, pool);
    x = {dropped.data, DType::kF32, args.x.dims};
  }
  const OperandRows<Operand> grad_u =
      transposed_rows<Operand>(args.grad_u, 1.0f, scratch + layout.grad_u, pool);
  reduce_over_tokens<Operand>(grad_u, rank, x, workers, pool, [&](const Tile& tile) {
    write_tile(tile, args.grad_a, nullptr, args.mode);
  });
  const OperandRows<Operand> u =
      transposed_rows<Operand>(args.u, args.scale, scratch + layout.u, pool);
  reduce_over_tokens<Operand>(u, rank, args.grad_y, workers, pool, [&](const Tile& tile) {
    write_transposed(tile, args.grad_b, args.mode);
  });
}

void run(const LoraBackwardArgs& args, const Execution& execution) {
  if (args.compute == ComputeType::kBF16) {
    backward<Bf16Operand>(args, *execution.pool);
  } else {
    backward<Fp32Operand>(args, *execution.pool);
  }
}

std::int64_t scratch_bytes(const LoraBackwardArgs& args, int threads) {
  return args.compute == ComputeType::kBF16 ? Layout<Bf16Operand>(args, threads).bytes
                                            : Layout<Fp32Operand>(args, threads).bytes;
}

}  // namespace

void append_lora(OpTable& table) {
  table.lora_backward.push_back({"cpu." REPRISE_ISA_NAME ".tiled", check, scratch_bytes, run});
}

}  // namespace reprise::cpu::REPRISE_ISA
