// Training runs of torch, PEFT and bitsandbytes, repeated through the command line.
#include <boost/test/unit_test.hpp>

#include "reprise/kernels/cpu_ops.h"
#include "tests/apps/golden_run.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

BOOST_AUTO_TEST_SUITE(golden_runs)

BOOST_AUTO_TEST_CASE(every_base_trains_as_torch_does) {
  for (const char* model : {"qwen2", "llama"}) {
    for (const char* base : {"bf16", "nf4", "nf4-dq"}) {
      check_golden_run({.model = model, .base = base, .more = {"--compute", "fp32"}});
    }
  }
  check_golden_run({.model = "qwen2", .base = "bf16-sharded", .more = {"--compute", "fp32"}});
}

BOOST_AUTO_TEST_CASE(every_instruction_set_trains_as_torch_does) {
  for (const char* isa : {"generic", "avx2", "avx512", "avx512_bf16", "amx"}) {
    if (*parse_isa(isa) > detect_isa()) {
      BOOST_TEST_MESSAGE("skipped: this CPU has no " << isa);
      continue;
    }
    for (const char* model : {"qwen2", "llama"}) {
      check_golden_run({.model = model, .more = {"--compute", "fp32"}, .isa = isa});
    }
  }
}

BOOST_AUTO_TEST_CASE(one_thread_and_three_train_as_torch_does) {
  check_golden_run({.model = "llama", .more = {"--compute", "fp32", "--threads", "1"}});
  check_golden_run({.model = "llama", .more = {"--compute", "fp32", "--threads", "3"}});
}

BOOST_AUTO_TEST_CASE(a_library_gemm_trains_as_torch_does) {
  const TemporaryFolder folder;
  const ProgramResult probe = run_program(
      "qlora_step", {"--shape", "tiny", "--linear", "dequant", "--compute", "fp32", "--dry-run"});
  if (probe.exit_code != 0) {
    BOOST_TEST_MESSAGE("skipped: " << probe.err);
    return;
  }
  for (const char* linear : {"dequant", "cached"}) {
    check_golden_run({.model = "qwen2", .more = {"--compute", "fp32", "--linear", linear}});
  }
}

BOOST_AUTO_TEST_CASE(a_replayed_step_is_the_eager_one_bit_for_bit) {
  for (const char* compute : {"fp32", "bf16"}) {
    check_replay_equals_eager({.more = {"--compute", compute}});
  }
}

BOOST_AUTO_TEST_CASE(bf16_errs_no_more_than_twice_a_naive_bf16_evaluation) {
  for (const char* model : {"qwen2", "llama"}) check_bf16_error({.model = model});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
