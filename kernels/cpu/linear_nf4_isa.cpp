// The frozen linear layer, forward: panels of 64 outputs, decoded from NF4 and used for all rows;
// the adapter's term is added to the same sums before they are written, once.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/low_rank_isa.h"
#include "kernels/cpu/nf4_panel_isa.h"

namespace reprise::cpu::REPRISE_ISA {

void append_linear_backward(OpTable& table);  // linear_nf4_backward_isa.cpp

namespace {

// Scratch: x and dropout(x) as operands, scale * u as an operand, then the workers'.
template <class Operand>
struct Pieces {
  void *x = nullptr, *dropped = nullptr, *u = nullptr, *workers = nullptr;
  std::int64_t bytes = 0;

  Pieces(const LinearNf4ForwardArgs& args, void* scratch, int threads) {
    const std::int64_t m = args.x.dims[0], k = args.weight.k;
    Carver carver(scratch);
    if (!lies_ready<Operand>(args.x)) x = carver.take<char>(operand_bytes<Operand>(m, k));
    if (args.lora.a.present()) {
      if (args.lora.dropout.probability > 0) {
        dropped = carver.take<char>(operand_bytes<Operand>(m, k));
      }
      u = carver.take<char>(operand_bytes<Operand>(m, args.lora.a.dims[0]));
    }
    workers = carver.take<char>(threads * WorkerMemory<Operand>::bytes());
    bytes = carver.used();
  }
};

template <class Operand>
void forward(const LinearNf4ForwardArgs& args, ThreadPool& pool) {
  const Pieces<Operand> pieces(args, args.scratch.data, pool.threads());
  const std::int64_t m = args.x.dims[0], n = args.weight.n, k = args.weight.k;
  const OperandRows<Operand> x = operand_rows<Operand>(args.x, pieces.x, pool);

  const bool adapted = args.lora.a.present();
  const std::int64_t rank = adapted ? args.lora.a.dims[0] : 0;
  OperandRows<Operand> u;
  if (adapted) {
    const OperandRows<Operand> dropped =
        args.lora.dropout.probability > 0
            ? dropped_rows<Operand>(args.x, args.lora.dropout, pieces.dropped, pool)
            : x;
    low_rank_product<Operand>(
        dropped, k, 1.0f, args.lora.u, pieces.workers, pool,
        [&](std::int64_t column, std::int64_t width, std::int64_t begin, std::int64_t end,
            auto* panel) {
          pack_weight_rows<Operand>({args.lora.a, column, width, begin, end}, panel);
        });
    u = scaled_rows<Operand>(args.lora.u, args.lora.scale, pieces.u, pool);
  }

  const float* const bias = args.bias.present() ? args.bias.as<float>() : nullptr;
  const Tiling tiling(m, n, pool.threads());
  for_each_tile<Operand>(
      tiling, pieces.workers, pool, [&](const Tile& tile, const WorkerMemory<Operand>& memory) {
        add_product(
            tile, x, k, tile.sums, OutputMode::kOverwrite, memory.panel,
            [&](std::int64_t begin, std::int64_t end, auto* panel) {
              pack_nf4_rows<Operand>({args.weight, tile.column, tile.width, begin, end}, panel);
            });
        if (adapted) {
          add_product(tile, u, rank, tile.sums, OutputMode::kAccumulate, memory.panel,
                      [&](std::int64_t begin, std::int64_t end, auto* panel) {
                        pack_weight_rows<Operand>(
                            {args.lora.b, tile.column, tile.width, begin, end}, panel);
                      });
        }
        write_tile(tile, args.y, bias, args.mode);
      });
}

void run(const LinearNf4ForwardArgs& args, const Execution& execution) {
  with_operand(args.compute,
               [&](auto operand) { forward<decltype(operand)>(args, *execution.pool); });
}

std::int64_t scratch_bytes(const LinearNf4ForwardArgs& args, int threads) {
  return with_operand(args.compute, [&](auto operand) {
    return Pieces<decltype(operand)>(args, nullptr, threads).bytes;
  });
}

}  // namespace

void append_linear(OpTable& table) {
  table.linear_nf4_forward.push_back({"cpu." REPRISE_ISA_NAME ".fused", check, scratch_bytes, run});
  append_linear_backward(table);
}

}  // namespace reprise::cpu::REPRISE_ISA
