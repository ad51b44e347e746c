// What the command line asks for, checked for everything that needs no file: ranges, names, and
// options that contradict each other. What an option defaults to may depend on the run: those are
// optional here and resolved in run_plan.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "apps/qlora_step/schedule.h"
#include "reprise/graphs/trainer.h"

namespace reprise::qlora_step {

enum class Device { kCpu, kReference, kCuda, kEmulated };
const char* name_of(Device device);
const char* name_of(GraphMode mode);

struct Options {
  // Model and data
  std::filesystem::path model;
  std::string shape;
  std::filesystem::path data;
  std::filesystem::path eval_data;
  std::filesystem::path adapter;
  std::uint64_t seed = 0;
  // Training
  std::optional<std::int64_t> steps, batch, seq;
  std::int64_t accumulate = 1;
  std::optional<double> learning_rate;
  Schedule schedule = Schedule::kConstant;
  std::int64_t warmup = 0;
  AdamWOptions adamw;
  float clip = 1;
  // Adapter; absent: from --adapter, or the defaults of LoraConfig
  std::optional<std::int64_t> rank;
  std::optional<double> alpha, dropout;
  std::optional<std::vector<Projection>> target_modules;
  // Machine
  Device device = Device::kCpu;
  std::optional<ComputeType> compute;
  LinearMode linear = LinearMode::kFused;
  GraphMode graph = GraphMode::kRequired;
  bool prune = false;
  std::optional<int> threads;
  // Output
  std::filesystem::path out, metrics, graph_out, dump;
  std::vector<std::string> samples;
  std::int64_t sample_tokens = 48;
  bool dry_run = false;
  bool quiet = false;
  // Instead of training
  std::filesystem::path tokenize, eval_nll;

  // Neither a model nor a shape was named: a made-up model learns a made-up language.
  bool embedded_default() const { return model.empty() && shape.empty(); }
};

enum class Request { kRun, kHelp, kVersion, kListShapes };

struct CommandLine {
  Request request = Request::kRun;
  Options options;
};

// Throws UsageError saying what is wrong and what is accepted.
CommandLine parse_command_line(int argc, const char* const* argv);

void print_help(std::ostream& out);
void print_shapes(std::ostream& out);

}  // namespace reprise::qlora_step
