// The CUDA kernels, backend and capture, executed on the emulated device: whole training runs
// through the command line.
#include <boost/test/unit_test.hpp>

#include "tests/apps/golden_run.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

std::vector<std::string> emulated(std::vector<std::string> more) {
  more.insert(more.begin(), {"--device", "emulated"});
  return more;
}

BOOST_AUTO_TEST_SUITE(emulated_device)

BOOST_AUTO_TEST_CASE(fp32_trains_as_torch_does) {
  for (const char* model : {"qwen2", "llama"}) {
    for (const char* base : {"bf16", "nf4", "nf4-dq"}) {
      check_golden_run({.model = model, .base = base, .more = emulated({"--compute", "fp32"})});
    }
  }
}

BOOST_AUTO_TEST_CASE(bf16_errs_no_more_than_twice_a_naive_bf16_evaluation) {
  for (const char* model : {"qwen2", "llama"}) {
    check_bf16_error({.model = model, .more = emulated({})});
  }
}

BOOST_AUTO_TEST_CASE(a_replayed_step_is_the_eager_one_bit_for_bit) {
  for (const char* compute : {"fp32", "bf16"}) {
    check_replay_equals_eager({.more = emulated({"--compute", compute})});
  }
}

BOOST_AUTO_TEST_CASE(the_device_says_what_it_is) {
  const ProgramResult result =
      run_program("qlora_step", {"--shape", "tiny", "--device", "emulated", "--dry-run"});
  BOOST_TEST(result.exit_code == 0);
  BOOST_TEST(result.out.find("device    emulated (") != std::string::npos, result.all());
  BOOST_TEST(result.out.find("linear_nf4_backward: ") != std::string::npos, result.all());
}

BOOST_AUTO_TEST_CASE(a_missing_library_is_named) {
  const ProgramResult result =
      run_program("qlora_step", {"--shape", "tiny", "--device", "emulated", "--dry-run"},
                  {{"REPRISE_EMULATED_DEVICE", "/nowhere/library.so"}});
  BOOST_TEST(result.exit_code == 2);
  BOOST_TEST(result.err.find("/nowhere/library.so") != std::string::npos, result.all());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
