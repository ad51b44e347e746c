// SmolLM2-135M-Instruct from its GGUF file: text, likelihood, memory, training. Skipped where
// tests/run.sh could not fetch the file.
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/apps/run_program.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

const std::string kModel = REPRISE_REAL_MODEL;

const char* const kText =
    "The quick brown fox jumps over the lazy dog. In 1905, Albert Einstein published four papers "
    "which changed the way physicists think about space and time. The capital of France is Paris, "
    "and the capital of Italy is Rome.";

// Disables the suite where the model is not; ctest takes the message for a skip.
boost::test_tools::assertion_result model_is_here(boost::unit_test::test_unit_id) {
  const bool here = std::filesystem::exists(kModel);
  if (!here) std::printf("skipped: there is no %s\n", kModel.c_str());
  return here;
}

BOOST_AUTO_TEST_SUITE(real_model, *boost::unit_test::precondition(model_is_here))

// Ids of Hugging Face's tokenizer for this model.
BOOST_AUTO_TEST_CASE(text_becomes_the_published_ids) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "text";
  write_bytes(file, "The capital of France is Paris, 1905");
  const ProgramResult result =
      run_program("qlora_step", {"--model", kModel, "--tokenize", file.string()});
  BOOST_CHECK_MESSAGE(result.exit_code == 0, result.all());
  BOOST_CHECK_EQUAL(result.out, "504 3575 282 4649 314 7042 28 216 33 41 32 37\n");
}

// 2.7230 before NF4; forgetting to undo GGUF's permutation of the rows of q and k gives 4.76.
BOOST_AUTO_TEST_CASE(a_known_text_is_as_likely_as_it_should_be) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "text";
  write_bytes(file, kText);
  for (const char* compute : {"fp32", "bf16"}) {
    const ProgramResult result = run_program(
        "qlora_step",
        {"--model", kModel, "--eval-nll", file.string(), "--quiet", "--compute", compute});
    BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
    BOOST_CHECK(result.out.find("predicted 47") != std::string::npos);
    const double nll = std::stod(result.out.substr(result.out.rfind(' ')));
    BOOST_TEST_MESSAGE(compute << ": mean NLL " << nll);
    BOOST_CHECK_SMALL(nll - 2.72, 0.15);
  }
}

BOOST_AUTO_TEST_CASE(a_step_of_512_tokens_stays_below_900_megabytes) {
  const TemporaryFolder folder;
  const auto data = folder.path() / "data.jsonl";
  std::string text;
  for (int i = 0; i < 20; ++i) text += std::string(kText) + " ";
  write_bytes(data, nlohmann::json{{"text", text}}.dump() + "\n");
  const auto out = folder.path() / "out";
  const ProgramResult result =
      run_program("qlora_step", {"--model", kModel, "--data", data.string(), "--steps", "2",
                                 "--batch", "1", "--seq", "512", "--out", out.string()});
  BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
  std::ifstream file(out / "summary.json");
  const auto peak = nlohmann::json::parse(file).at("peak_bytes").get<std::int64_t>();
  BOOST_TEST_MESSAGE("peak " << peak << " bytes");
  BOOST_CHECK_LT(peak, 900'000'000);
}

BOOST_AUTO_TEST_CASE(instructions_are_learned_and_answered) {
  const TemporaryFolder folder;
  const auto data = folder.path() / "data.jsonl";
  write_bytes(data, nlohmann::json{{"instruction", "What is the secret word?"},
                                   {"response", "The secret word is marmalade."}}
                            .dump() +
                        "\n");
  const ProgramResult result =
      run_program("qlora_step", {"--model", kModel, "--data", data.string(), "--steps", "12",
                                 "--batch", "1", "--seq", "64", "--lr", "2e-3", "--sample",
                                 "What is the secret word?", "--sample-tokens", "12"});
  BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
  const std::size_t after = result.out.find("(after)");
  BOOST_REQUIRE(after != std::string::npos);
  BOOST_CHECK_MESSAGE(result.out.find("marmalade", after) != std::string::npos, result.all());
}

BOOST_AUTO_TEST_CASE(a_bad_line_of_data_is_named_by_its_number) {
  const TemporaryFolder folder;
  const auto data = folder.path() / "data.jsonl";
  write_bytes(data, "{\"text\": \"fine\"}\n{\"text\": 5}\n");
  const ProgramResult result =
      run_program("qlora_step", {"--model", kModel, "--data", data.string()});
  BOOST_CHECK_EQUAL(result.exit_code, 3);
  BOOST_CHECK_MESSAGE(result.err.find(":2") != std::string::npos, result.err);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
