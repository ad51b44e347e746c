#include "tests/apps/golden_run.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reprise/runtime/safetensors.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {

ProgramResult run_golden(const GoldenRun& run, const std::filesystem::path& folder) {
  const std::filesystem::path data = golden(run.model);
  std::vector<std::string> arguments = {
      "--model",        (data / run.base).string(),
      "--data",         (data / "batch.safetensors").string(),
      "--adapter",      (data / "train-nf4/adapter-init").string(),
      "--out",          (folder / "out").string(),
      "--dump",         (folder / "dump.safetensors").string(),
      "--steps",        "5",
      "--lr",           "1e-3",
      "--clip",         "0",
      "--weight-decay", "0.01",
      "--schedule",     "constant",
      "--quiet"};
  arguments.insert(arguments.end(), run.more.begin(), run.more.end());
  Environment environment;
  if (!run.isa.empty()) environment.emplace_back("REPRISE_ISA", run.isa);
  ProgramResult result = run_program("qlora_step", arguments, environment);
  BOOST_REQUIRE_MESSAGE(result.exit_code == 0, result.all());
  return result;
}

std::map<std::string, double> relative_errors(const std::filesystem::path& ours,
                                              const std::filesystem::path& theirs) {
  const SafetensorsFile our_file(ours), their_file(theirs);
  BOOST_CHECK_EQUAL(our_file.tensors().size(), their_file.tensors().size());
  std::map<std::string, double> errors;
  for (const SafetensorsTensor& expected : their_file.tensors()) {
    const SafetensorsTensor* found = our_file.find(expected.name);
    BOOST_REQUIRE_MESSAGE(found != nullptr, expected.name << " is missing");
    BOOST_REQUIRE_EQUAL(to_string(found->shape), to_string(expected.shape));
    std::vector<float> a(static_cast<std::size_t>(expected.count())), b(a.size());
    read_floats(*found, ours, a.data());
    read_floats(expected, theirs, b.data());
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
      size += std::pow(static_cast<double>(b[i]), 2);
    }
    errors[expected.name] = std::sqrt(difference / size);
  }
  return errors;
}

std::vector<MetricsLine> read_trace(const std::filesystem::path& path) {
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::vector<MetricsLine> lines;
  for (const nlohmann::json& step : trace.at("steps")) {
    lines.push_back(
        {.step = step.at("step"), .loss = step.at("loss"), .grad_norm = step.at("grad_norm")});
  }
  return lines;
}

}  // namespace reprise::test
