// Training runs of torch, PEFT and bitsandbytes, repeated through the command line.
//
// Tolerances: the golden FP32 results are within 2.5e-6 of a float64 evaluation. Ours differ by the
// order of sums over at most 320 terms and two layers, about as much; 1e-4 leaves room for that and
// catches every wrong term. AdamW's first steps divide by the root of the squared gradient, which
// magnifies relative errors of near-zero gradients: 1e-3 for adapters after five steps.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "reprise/kernels/cpu_ops.h"
#include "tests/apps/golden_run.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

constexpr double kTensorTolerance = 1e-4;
constexpr double kLossTolerance = 1e-4;
constexpr double kAdapterTolerance = 1e-3;

void check_trace(const std::filesystem::path& metrics, const std::filesystem::path& trace) {
  const std::vector<MetricsLine> ours = read_metrics(metrics), theirs = read_trace(trace);
  BOOST_REQUIRE_EQUAL(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    BOOST_CHECK_EQUAL(ours[i].step, theirs[i].step);
    BOOST_CHECK_SMALL(ours[i].loss - theirs[i].loss, kLossTolerance);
    BOOST_CHECK_SMALL(ours[i].grad_norm / theirs[i].grad_norm - 1, kTensorTolerance);
  }
}

void check_all_below(const std::map<std::string, double>& errors, double tolerance) {
  BOOST_CHECK(!errors.empty());
  for (const auto& [name, error] : errors) {
    BOOST_CHECK_MESSAGE(error < tolerance, name << " is off by " << error);
  }
}

void check_run(const GoldenRun& run) {
  BOOST_TEST_CONTEXT(run.model << " " << run.base << " " << run.isa << " "
                               << (run.more.empty() ? "" : run.more.back())) {
    const TemporaryFolder folder;
    run_golden(run, folder.path());
    const bool double_quantised = run.base == "nf4-dq";
    const std::filesystem::path expected =
        golden(run.model) / (double_quantised ? "train-nf4-dq" : "train-nf4");
    check_trace(folder.path() / "out/metrics.jsonl", expected / "trace.json");
    check_all_below(relative_errors(folder.path() / "out/adapter/adapter_model.safetensors",
                                    expected / "adapter-final/adapter_model.safetensors"),
                    kAdapterTolerance);
    if (double_quantised) return;
    check_all_below(
        relative_errors(folder.path() / "dump.safetensors", expected / "step1.safetensors"),
        kTensorTolerance);
  }
}

BOOST_AUTO_TEST_SUITE(golden_runs)

BOOST_AUTO_TEST_CASE(every_base_trains_as_torch_does) {
  for (const char* model : {"qwen2", "llama"}) {
    for (const char* base : {"bf16", "nf4", "nf4-dq"}) {
      check_run({.model = model, .base = base, .more = {"--compute", "fp32"}});
    }
  }
  check_run({.model = "qwen2", .base = "bf16-sharded", .more = {"--compute", "fp32"}});
}

BOOST_AUTO_TEST_CASE(every_instruction_set_trains_as_torch_does) {
  for (const char* isa : {"generic", "avx2", "avx512", "avx512_bf16", "amx"}) {
    if (*parse_isa(isa) > detect_isa()) {
      BOOST_TEST_MESSAGE("skipped: this CPU has no " << isa);
      continue;
    }
    for (const char* model : {"qwen2", "llama"}) {
      check_run({.model = model, .more = {"--compute", "fp32"}, .isa = isa});
    }
  }
}

BOOST_AUTO_TEST_CASE(one_thread_and_three_train_as_torch_does) {
  check_run({.model = "llama", .more = {"--compute", "fp32", "--threads", "1"}});
  check_run({.model = "llama", .more = {"--compute", "fp32", "--threads", "3"}});
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
    check_run({.model = "qwen2", .more = {"--compute", "fp32", "--linear", linear}});
  }
}

BOOST_AUTO_TEST_CASE(a_replayed_step_is_the_eager_one_bit_for_bit) {
  for (const char* compute : {"fp32", "bf16"}) {
    const TemporaryFolder eager, replayed;
    run_golden({.more = {"--compute", compute, "--graph", "off"}}, eager.path());
    run_golden({.more = {"--compute", compute, "--graph", "required"}}, replayed.path());
    const std::string adapter = "out/adapter/adapter_model.safetensors";
    BOOST_CHECK(read_bytes(eager.path() / adapter) == read_bytes(replayed.path() / adapter));
    const auto a = read_metrics(eager.path() / "out/metrics.jsonl");
    const auto b = read_metrics(replayed.path() / "out/metrics.jsonl");
    BOOST_REQUIRE_EQUAL(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      BOOST_CHECK_EQUAL(a[i].loss, b[i].loss);
      BOOST_CHECK_EQUAL(a[i].grad_norm, b[i].grad_norm);
    }
  }
}

// Root of the mean squared relative error over the tensors whose name begins so.
double overall(const std::map<std::string, double>& errors, const std::string& prefix) {
  double sum = 0;
  std::int64_t count = 0;
  for (const auto& [name, error] : errors) {
    if (!name.starts_with(prefix)) continue;
    sum += error * error;
    ++count;
  }
  BOOST_REQUIRE(count > 0);
  return std::sqrt(sum / static_cast<double>(count));
}

// The naive bf16 evaluation: every product and every op in double precision by the plain ops, with
// each stored activation and each operand of a product rounded to bf16 and nothing else. What ours
// adds, FP32 sums in another order, must not double its error. That evaluation shares the places of
// rounding with ours, so both are held against a third one as well: the step of torch with
// bitsandbytes in bf16 is off by 1.9 % in its logits and 3.1 % in its gradients on these models.
BOOST_AUTO_TEST_CASE(bf16_errs_no_more_than_twice_a_naive_bf16_evaluation) {
  for (const char* model : {"qwen2", "llama"}) {
    const std::filesystem::path expected = golden(model) / "train-nf4/step1.safetensors";
    const TemporaryFolder naive_folder, folder;
    run_golden({.model = model, .more = {"--compute", "bf16", "--device", "reference"}},
               naive_folder.path());
    run_golden({.model = model, .more = {"--compute", "bf16"}}, folder.path());
    const auto naive = relative_errors(naive_folder.path() / "dump.safetensors", expected);
    const auto ours = relative_errors(folder.path() / "dump.safetensors", expected);
    for (const auto& [prefix, torch_error] :
         {std::pair("logits", 0.019), {"grad.", 0.031}, {"dx.", 0.031}}) {
      BOOST_TEST_MESSAGE(model << " " << prefix << ": ours " << overall(ours, prefix) << ", naive "
                               << overall(naive, prefix));
      BOOST_CHECK_LE(overall(ours, prefix), 2 * overall(naive, prefix));
      BOOST_CHECK_LE(overall(ours, prefix), 2 * torch_error);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
