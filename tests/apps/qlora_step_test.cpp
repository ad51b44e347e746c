// qlora_step as a program: exit codes and messages, what it writes, how it stops.
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "reprise/runtime/safetensors.h"
#include "tests/apps/run_program.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

namespace fs = std::filesystem;

ProgramResult qlora_step(const std::vector<std::string>& arguments) {
  return run_program("qlora_step", arguments);
}

void check_fails(const std::vector<std::string>& arguments, int exit_code,
                 std::initializer_list<std::string_view> texts) {
  const ProgramResult result = qlora_step(arguments);
  BOOST_TEST_CONTEXT(result.all()) {
    BOOST_CHECK_EQUAL(result.exit_code, exit_code);
    for (const std::string_view text : texts) {
      BOOST_CHECK_MESSAGE(result.err.find(text) != std::string::npos, "missing: " << text);
    }
  }
}

nlohmann::json read_json(const fs::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

const std::string kModel = golden("qwen2/nf4").string();
const std::string kBatch = golden("qwen2/batch.safetensors").string();

BOOST_AUTO_TEST_SUITE(qlora_step_program)

BOOST_AUTO_TEST_CASE(the_embedded_default_halves_its_loss) {
  const TemporaryFolder folder;
  const ProgramResult result = qlora_step({"--out", (folder.path() / "out").string()});
  BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
  const auto lines = read_metrics(folder.path() / "out/metrics.jsonl");
  BOOST_REQUIRE_GE(lines.size(), 20);
  double last = 0;
  for (std::size_t i = lines.size() - 5; i < lines.size(); ++i) last += lines[i].loss / 5;
  BOOST_TEST_MESSAGE("loss " << lines.front().loss << " -> " << last);
  BOOST_CHECK_LT(last, lines.front().loss / 2);
  BOOST_CHECK(result.out.find('\r') == std::string::npos);  // no terminal: whole lines
  BOOST_CHECK(fs::exists(folder.path() / "out/adapter/adapter_config.json"));
  BOOST_CHECK_EQUAL(read_json(folder.path() / "out/config.json").at("rank"), 16);
}

BOOST_AUTO_TEST_CASE(bad_usage_ends_with_2) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "file", "x");
  check_fails({"--nope"}, 2, {"--nope", "--help"});
  // There is none where this is tested, so the message has to say what else there is.
  check_fails({"--device", "cuda"}, 2, {"--device cpu"});
  check_fails({"--out", (folder.path() / "file/out").string()}, 2, {"file/out"});
  check_fails({"--metrics", (folder.path() / "none/m.jsonl").string()}, 2, {"m.jsonl"});
  check_fails({"--model", kModel, "--data", kBatch, "--seq", "64"}, 2, {"contradict", "2 x 48"});
  check_fails({"--model", kModel, "--data", kBatch, "--accumulate", "3"}, 2, {"does not divide"});
  check_fails({"--shape", "tiny", "--seq", "4096"}, 2, {"positions"});
}

BOOST_AUTO_TEST_CASE(bad_input_ends_with_3) {
  const TemporaryFolder folder;
  const fs::path pointer = folder.path() / "batch.safetensors";
  write_bytes(pointer, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  check_fails({"--model", (folder.path() / "none").string(), "--data", kBatch}, 3, {"none"});
  check_fails({"--model", kModel, "--data", (folder.path() / "no.safetensors").string()}, 3,
              {"no.safetensors"});
  check_fails({"--model", kModel, "--data", pointer.string()}, 3, {"git-LFS", "batch.safetensors"});
  check_fails({"--model", kModel, "--data", kModel + "/model.safetensors"}, 3,
              {"input_ids is missing"});
  check_fails({"--model", kModel, "--data", kBatch, "--adapter", folder.path().string()}, 3,
              {"adapter_config.json"});
  // Ids of a vocabulary of 320 do not fit one of 256.
  check_fails({"--model", golden("llama/nf4").string(), "--data", kBatch}, 3,
              {"outside the vocabulary of 256"});
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_ends_with_4_before_anything_is_loaded) {
  check_fails({"--shape", "llama3.1-8b", "--batch", "4096", "--seq", "4096", "--steps", "1"}, 4,
              {"reduce"});
}

BOOST_AUTO_TEST_CASE(a_step_that_is_not_finite_ends_with_5_and_keeps_the_last_adapter) {
  const TemporaryFolder folder;
  // The first update puts weights near 1e30, whose products overflow in the second step.
  const std::string out = (folder.path() / "out").string();
  const ProgramResult result = qlora_step({"--steps", "5", "--lr", "1e30", "--out", out});
  BOOST_TEST_CONTEXT(result.all()) {
    BOOST_CHECK_EQUAL(result.exit_code, 5);
    BOOST_CHECK(result.err.find("step 2") != std::string::npos);
    BOOST_CHECK(result.err.find("layers.") != std::string::npos);
    BOOST_CHECK(fs::exists(out + "/adapter/adapter_model.safetensors"));
  }
}

BOOST_AUTO_TEST_CASE(metrics_say_what_was_trained) {
  const TemporaryFolder folder;
  const fs::path metrics = folder.path() / "m.jsonl";
  const ProgramResult result =
      qlora_step({"--model", kModel, "--data", kBatch, "--steps", "4", "--warmup", "2", "--lr",
                  "1e-3", "--schedule", "linear", "--metrics", metrics.string()});
  BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
  std::ifstream file(metrics);
  std::int64_t step = 0;
  for (std::string text; std::getline(file, text);) {
    const nlohmann::json line = nlohmann::json::parse(text);
    BOOST_CHECK_EQUAL(line.at("step"), ++step);
    BOOST_CHECK_EQUAL(line.at("padded_tokens"), 96);
    BOOST_CHECK_LT(line.at("real_tokens"), 96);  // one row of the two ends in padding
    BOOST_CHECK_GT(line.at("real_tokens"), 48);
    BOOST_CHECK_GT(line.at("seconds"), 0.0);
    BOOST_CHECK_GT(line.at("tokens_per_second"), 0.0);
    BOOST_CHECK_GT(line.at("peak_bytes"), 1 << 20);
  }
  BOOST_CHECK_EQUAL(step, 4);
  const auto lines = read_metrics(metrics);
  BOOST_CHECK_CLOSE(lines[0].learning_rate, 0.5e-3, 1e-9);
  BOOST_CHECK_CLOSE(lines[2].learning_rate, 1e-3, 1e-9);
  BOOST_CHECK_CLOSE(lines[3].learning_rate, 0.5e-3, 1e-9);
}

BOOST_AUTO_TEST_CASE(accumulated_rows_train_like_one_batch) {
  const TemporaryFolder folder;
  std::vector<std::vector<MetricsLine>> runs;
  for (const char* accumulate : {"1", "2"}) {
    const fs::path metrics = folder.path() / accumulate;
    const ProgramResult result = qlora_step({"--model", kModel, "--data", kBatch, "--steps", "3",
                                             "--lr", "1e-3", "--compute", "fp32", "--accumulate",
                                             accumulate, "--metrics", metrics.string()});
    BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
    runs.push_back(read_metrics(metrics));
  }
  BOOST_REQUIRE_EQUAL(runs[0].size(), runs[1].size());
  for (std::size_t i = 0; i < runs[0].size(); ++i) {
    BOOST_CHECK_CLOSE(runs[0][i].loss, runs[1][i].loss, 1e-3);  // percent: FP32 sums regrouped
    BOOST_CHECK_CLOSE(runs[0][i].grad_norm, runs[1][i].grad_norm, 1e-2);
  }
}

BOOST_AUTO_TEST_CASE(a_run_can_be_interrupted_and_gone_on_with) {
  const TemporaryFolder folder;
  const fs::path out = folder.path() / "out";
  RunningProgram program("qlora_step", {"--steps", "1000000", "--out", out.string()});
  // Until some steps are on record; the minute is for a machine under load.
  std::error_code missing;
  for (int wait = 0; wait < 1200; ++wait) {
    const auto bytes = fs::file_size(out / "metrics.jsonl", missing);
    if (!missing && bytes > 1000) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  BOOST_TEST_CONTEXT(result.all()) {
    BOOST_CHECK_EQUAL(result.exit_code, 130);
    BOOST_CHECK(result.out.find("to go on") != std::string::npos);
    BOOST_CHECK(!read_metrics(out / "metrics.jsonl").empty());
  }
  const ProgramResult next =
      qlora_step({"--steps", "2", "--adapter", (out / "adapter").string(), "--quiet"});
  BOOST_CHECK_MESSAGE(next.exit_code == 0, next.all());
}

BOOST_AUTO_TEST_CASE(a_dry_run_writes_the_graph_and_loads_nothing) {
  const TemporaryFolder folder;
  const fs::path graph = folder.path() / "graph.json";
  const ProgramResult result = qlora_step(
      {"--shape", "qwen2.5-1.5b", "--seq", "128", "--dry-run", "--graph-out", graph.string()});
  BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
  BOOST_CHECK(result.out.find("memory    weights") != std::string::npos);
  BOOST_CHECK(result.out.find("linear_nf4_backward: 196 x") != std::string::npos);
  int backward = 0;
  const nlohmann::json printed = read_json(graph);
  for (const nlohmann::json& node : printed.at("nodes")) {
    if (node.at("op") != "linear_nf4_backward") continue;
    ++backward;
    BOOST_CHECK_EQUAL(node.at("pass"), "backward");
    for (const char* key : {"layer", "projection", "shapes", "implementation", "reads", "writes"}) {
      BOOST_CHECK_MESSAGE(node.contains(key), key);
    }
  }
  BOOST_CHECK_EQUAL(backward, 196);  // 7 projections x 28 layers
}

BOOST_AUTO_TEST_CASE(the_evaluation_loss_is_printed_before_and_after_and_changes_nothing) {
  const TemporaryFolder folder;
  const std::string with = (folder.path() / "with").string();
  const std::string without = (folder.path() / "without").string();
  const std::vector<std::string> common = {"--model", kModel, "--data", kBatch,
                                           "--steps", "3",    "--lr",   "1e-3"};
  std::vector<std::string> a = common, b = common;
  a.insert(a.end(), {"--out", with, "--eval-data", kBatch});
  b.insert(b.end(), {"--out", without});
  const ProgramResult result = qlora_step(a);
  BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
  const auto lines = read_metrics(with + "/metrics.jsonl");
  const nlohmann::json summary = read_json(with + "/summary.json");
  BOOST_CHECK_EQUAL(summary.at("ending"), "complete");
  BOOST_CHECK_EQUAL(summary.at("steps"), 3);
  // The same tokens before the first step: the same loss, its terms summed in another order.
  BOOST_CHECK_CLOSE(summary.at("eval_before").get<double>(), lines.front().loss, 1e-3);
  BOOST_CHECK_LT(summary.at("eval_after"), summary.at("eval_before"));
  BOOST_CHECK_EQUAL(qlora_step(b).exit_code, 0);
  const std::string adapter = "/adapter/adapter_model.safetensors";
  BOOST_CHECK(read_bytes(with + adapter) == read_bytes(without + adapter));
}

BOOST_AUTO_TEST_CASE(a_lower_instruction_set_can_be_asked_for) {
  const ProgramResult generic =
      run_program("qlora_step", {"--dry-run"}, {{"REPRISE_ISA", "generic"}});
  BOOST_REQUIRE_MESSAGE(generic.exit_code == 0, generic.all());
  BOOST_CHECK(generic.out.find("cpu.avx") == std::string::npos);
  BOOST_CHECK(generic.out.find("fp32 compute") != std::string::npos);
  const ProgramResult wrong = run_program("qlora_step", {"--dry-run"}, {{"REPRISE_ISA", "sse9"}});
  BOOST_CHECK_EQUAL(wrong.exit_code, 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
