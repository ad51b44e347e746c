// Fills the CPU's table: for each op the implementations of the best instruction set first, then
// those of every lower one down to the generic build.
#include "reprise/kernels/cpu_ops.h"

#include <string>

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/onednn_linear.h"
#include "reprise/kernels/error.h"

namespace reprise {
namespace {

using Append = void (*)(OpTable&);

struct InstructionSet {
  Isa isa;
  Append linear;
  Append others[6];
};

constexpr InstructionSet kInstructionSets[] = {
#ifdef REPRISE_X86_64
    {Isa::kAmx,
     cpu::amx::append_linear,
     {cpu::amx::append_lora, cpu::amx::append_attention, cpu::amx::append_norm,
      cpu::amx::append_pointwise, cpu::amx::append_optimizer, cpu::amx::append_cross_entropy}},
    {Isa::kAvx512Bf16,
     cpu::avx512_bf16::append_linear,
     {cpu::avx512_bf16::append_lora, cpu::avx512_bf16::append_attention,
      cpu::avx512_bf16::append_norm, cpu::avx512_bf16::append_pointwise,
      cpu::avx512_bf16::append_optimizer, cpu::avx512_bf16::append_cross_entropy}},
    {Isa::kAvx512,
     cpu::avx512::append_linear,
     {cpu::avx512::append_lora, cpu::avx512::append_attention, cpu::avx512::append_norm,
      cpu::avx512::append_pointwise, cpu::avx512::append_optimizer,
      cpu::avx512::append_cross_entropy}},
    {Isa::kAvx2,
     cpu::avx2::append_linear,
     {cpu::avx2::append_lora, cpu::avx2::append_attention, cpu::avx2::append_norm,
      cpu::avx2::append_pointwise, cpu::avx2::append_optimizer, cpu::avx2::append_cross_entropy}},
#endif
    {Isa::kGeneric,
     cpu::generic::append_linear,
     {cpu::generic::append_lora, cpu::generic::append_attention, cpu::generic::append_norm,
      cpu::generic::append_pointwise, cpu::generic::append_optimizer,
      cpu::generic::append_cross_entropy}},
};

}  // namespace

const char* name_of(LinearMode mode) {
  switch (mode) {
    case LinearMode::kFused:
      return "fused";
    case LinearMode::kDequant:
      return "dequant";
    case LinearMode::kCached:
      return "cached";
  }
  return "?";
}

OpTable cpu_ops(Isa isa, LinearMode mode) {
  const Isa detected = detect_isa();
  require(isa <= detected, std::string("this CPU has no ") + name_of(isa) +
                               "; the best it has is " + name_of(detected));
  OpTable table;
  for (const InstructionSet& set : kInstructionSets) {
    if (set.isa > isa) continue;
    // The comparison modes list the library alone: where it can't run, the graph is refused, and
    // a comparison never silently times the fused kernels against themselves.
    if (mode == LinearMode::kFused) set.linear(table);
    for (const Append append : set.others) append(table);
  }
  if (mode != LinearMode::kFused) cpu::append_onednn_linear(mode, isa, table);
  return table;
}

}  // namespace reprise
