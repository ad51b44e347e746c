// The vocabulary head without a loss: all logits, a panel of 64 vocabulary entries at a time.
#include "kernels/cpu/lm_head_isa.h"

#include "kernels/cpu/dense_panel_isa.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Elements, rounded up so that what follows is aligned to 64 bytes.
template <class Operand>
constexpr std::int64_t aligned_count(std::int64_t count) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(typename Operand::Element));
  return (count + kLine - 1) / kLine * kLine;
}

template <class Operand>
void run(const LmHeadArgs& args, const Execution& execution) {
  ThreadPool& pool = *execution.pool;
  const std::int64_t m = args.x.dims[0];
  const std::int64_t c = args.x.dims[1];
  const std::int64_t v = args.weight.dims[0];
  const std::int64_t depth = whole_words<Operand>(c);
  auto* const x = static_cast<typename Operand::Element*>(args.scratch.data);
  auto* const panels = x + aligned_count<Operand>(m * depth);
  pool.parallel_ranges(m, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      gather_row<Operand>(args.x, row, x + row * depth);
    }
  });
  pool.parallel_dynamic((v + kPanel - 1) / kPanel, [&](std::int64_t index, int worker) {
    const std::int64_t first = index * kPanel;
    const std::int64_t width = first + kPanel <= v ? kPanel : v - first;
    auto* const panel = panels + worker * aligned_count<Operand>(kPanel * depth);
    pack_weight_rows<Operand>(
        {.weight = args.weight, .column = first, .width = width, .depth_begin = 0, .depth_end = c},
        panel);
    multiply_panel<Operand>({.a = x,
                             .lda = depth,
                             .panel = panel,
                             .depth = depth,
                             .c = args.logits.as<float>() + first,
                             .ldc = v,
                             .width = width,
                             .mode = OutputMode::kOverwrite},
                            m);
  });
}

template <class Operand>
std::int64_t bytes(const LmHeadArgs& args, int threads) {
  const std::int64_t depth = whole_words<Operand>(args.x.dims[1]);
  const std::int64_t count = aligned_count<Operand>(args.x.dims[0] * depth) +
                             threads * aligned_count<Operand>(kPanel * depth);
  return count * static_cast<std::int64_t>(sizeof(typename Operand::Element));
}

std::int64_t scratch_bytes(const LmHeadArgs& args, int threads) {
  return with_operand(args.compute,
                      [&](auto operand) { return bytes<decltype(operand)>(args, threads); });
}

void lm_head(const LmHeadArgs& args, const Execution& execution) {
  with_operand(args.compute, [&](auto operand) { run<decltype(operand)>(args, execution); });
}

}  // namespace

void append_lm_head(OpTable& table) {
  table.lm_head.push_back({.name = "cpu." REPRISE_ISA_NAME ".panels",
                           .supports = check,
                           .scratch_bytes = scratch_bytes,
                           .run = lm_head});
}

}  // namespace reprise::cpu::REPRISE_ISA
