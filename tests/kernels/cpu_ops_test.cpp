// The table of CPU ops: complete, ordered from the best instruction set down, and true to the mode
// that was asked for.
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "reprise/kernels/cpu_ops.h"
#include "reprise/kernels/error.h"

namespace reprise::test {
namespace {

std::vector<Isa> instruction_sets() {
  std::vector<Isa> sets;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (isa <= detect_isa()) sets.push_back(isa);
  }
  return sets;
}

// One entry for each op: how many implementations it has, and the name of the first and last.
struct Entry {
  std::string op;
  std::vector<std::string> names;
};

template <class Args>
Entry entry(const char* op, const Implementations<Args>& list) {
  Entry result{op, {}};
  for (const Implementation<Args>& implementation : list) {
    result.names.emplace_back(implementation.name);
  }
  return result;
}

std::vector<Entry> entries(const OpTable& table) {
  return {entry("embedding_forward", table.embedding_forward),
          entry("rms_norm_forward", table.rms_norm_forward),
          entry("rms_norm_backward", table.rms_norm_backward),
          entry("linear_nf4_forward", table.linear_nf4_forward),
          entry("linear_nf4_backward", table.linear_nf4_backward),
          entry("lora_backward", table.lora_backward),
          entry("rope", table.rope),
          entry("attention_forward", table.attention_forward),
          entry("attention_backward", table.attention_backward),
          entry("swiglu_forward", table.swiglu_forward),
          entry("swiglu_backward", table.swiglu_backward),
          entry("residual", table.residual),
          entry("cross_entropy", table.cross_entropy),
          entry("lm_head", table.lm_head),
          entry("grad_norm", table.grad_norm),
          entry("clip", table.clip),
          entry("adamw", table.adamw),
          entry("fill", table.fill)};
}

BOOST_AUTO_TEST_SUITE(cpu_ops_table)

BOOST_AUTO_TEST_CASE(every_op_has_an_implementation_of_every_set_best_first) {
  for (const Isa isa : instruction_sets()) {
    for (const Entry& op : entries(cpu_ops(isa, LinearMode::kFused))) {
      BOOST_TEST_CONTEXT(op.op << " for " << name_of(isa)) {
        BOOST_REQUIRE(!op.names.empty());
        const std::string best = std::string("cpu.") + name_of(isa);
        BOOST_TEST(op.names.front().substr(0, best.size()) == best);
        BOOST_TEST(op.names.back().substr(0, 11) == "cpu.generic");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_comparison_mode_lists_the_library_alone) {
  for (const LinearMode mode : {LinearMode::kDequant, LinearMode::kCached}) {
    const OpTable table = cpu_ops(detect_isa(), mode);
    const std::string name = std::string("cpu.onednn.") + name_of(mode);
    BOOST_TEST(table.linear_nf4_forward.size() == 1u);
    BOOST_TEST(table.linear_nf4_forward.at(0).name == name);
    BOOST_TEST(table.linear_nf4_backward.size() == 1u);
    BOOST_TEST(table.linear_nf4_backward.at(0).name == name);
    BOOST_TEST(!table.lora_backward.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_set_above_the_cpu_is_refused_by_name) {
  if (detect_isa() == Isa::kAmx) {
    BOOST_TEST_MESSAGE("skipped: this CPU has every instruction set");
    return;
  }
  BOOST_CHECK_THROW(cpu_ops(Isa::kAmx, LinearMode::kFused), Error);
}

BOOST_AUTO_TEST_CASE(modes_have_the_names_of_the_option) {
  BOOST_TEST(name_of(LinearMode::kFused) == std::string("fused"));
  BOOST_TEST(name_of(LinearMode::kDequant) == std::string("dequant"));
  BOOST_TEST(name_of(LinearMode::kCached) == std::string("cached"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
