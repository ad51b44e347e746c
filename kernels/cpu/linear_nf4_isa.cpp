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
struct Layout {
  std::int64_t x = 0, dropped = 0, u = 0, workers = 0, bytes = 0;

  Layout(const LinearNf4ForwardArgs& args, int threads) {
    const std::int64_t m = args.x.dims[0], k = args.weight.k;
    if (!lies_ready<Operand>(args.x)) take(x, operand_bytes<Operand>(m, k));
    if (args.lora.a.present()) {
      if (args.lora.dropout.probability > 0) take(dropped, operand_bytes<Operand>(m, k));
      take(u, operand_bytes<Operand>(m, args.lora.a.dims[0]));
    }
    take(workers, threads * WorkerMemory<Operand>::bytes());
  }

 private:
  void take(std::int64_t& offset, std::int64_t size) {
    offset = bytes;
    bytes += size;
  }
};

template <class Operand>
void forward(const LinearNf4ForwardArgs& args, ThreadPool& pool) {
  const Layout<Operand> layout(args, pool.threads());
  auto* const scratch = static_cast<char*>(args.scratch.data);
  const std::int64_t m = args.x.dims[0], n = args.weight.n, k = args.weight.k;
  const OperandRows<Operand> x = operand_rows<Operand>(args.x, scratch + layout.x, pool);

  const bool adapted = args.lora.a.present();
  const std::int64_t rank = adapted ? args.lora.a.dims[0] : 0;
  OperandRows<Operand> u;
  if (adapted) {
    const OperandRows<Operand> dropped =
        args.lora.dropout.probability > 0
            ? dropped_rows<Operand>(args.x, args.lora.dropout, scratch + layout.dropped, pool)
            : x;
    low_rank_product<Operand>(
        dropped, k, 1.0f, args.lora.u, scratch + layout.workers, pool,
        [&](std::int64_t column, std::int64_t width, std::int64_t begin, std::int64_t end,
            auto* panel) {
          pack_weight_rows<Operand>({args.lora.a, column, width, begin, end}, panel);
        });
    u = scaled_rows<Operand>(args.lora.u, args.lora.scale, scratch + layout.u, pool);
  }

  const float* const bias = args.bias.present() ? args.bias.as<float>() : nullptr;
  const Tiling tiling(m, n, pool.threads());
  for_each_tile<Operand>(
      tiling, scratch + layout.workers, pool,
      [&](const Tile& tile, const WorkerMemory<Operand>& memory) {
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
  if (args.compute == ComputeType::kBF16) {
    forward<Bf16Operand>(args, *execution.pool);
  } else {
    forward<Fp32Operand>(args, *execution.pool);
  }
}

std::int64_t scratch_bytes(const LinearNf4ForwardArgs& args, int threads) {
  return args.compute == ComputeType::kBF16 ? Layout<Bf16Operand>(args, threads).bytes
                                            : Layout<Fp32Operand>(args, threads).bytes;
}

}  // namespace

void append_linear(OpTable& table) {
  table.linear_nf4_forward.push_back({"cpu." REPRISE_ISA_NAME ".fused", check, scratch_bytes, run});
  append_linear_backward(table);
}

}  // namespace reprise::cpu::REPRISE_ISA
