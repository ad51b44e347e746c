// The golden training run of tests/data/README.md through the command line.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/apps/run_program.h"

namespace reprise::test {

struct GoldenRun {
  std::string model = "qwen2";         // or llama
  std::string base = "nf4";            // bf16, bf16-sharded, nf4, nf4-dq
  std::vector<std::string> more = {};  // further options
  std::string isa = {};                // REPRISE_ISA; empty: what the CPU has
};

// Five steps in `folder`, which gets out/ and dump.safetensors. The program must end with 0.
ProgramResult run_golden(const GoldenRun& run, const std::filesystem::path& folder);

// Relative distance (Frobenius) of each tensor of one file from its namesake in the other.
std::map<std::string, double> relative_errors(const std::filesystem::path& ours,
                                              const std::filesystem::path& theirs);

// The losses and gradient norms of a trace.json.
std::vector<MetricsLine> read_trace(const std::filesystem::path& path);

// The golden run, checked against what torch, PEFT and bitsandbytes recorded.
void check_golden_run(const GoldenRun& run);

// The run replayed and eager: the same losses, norms and adapter to the bit.
void check_replay_equals_eager(GoldenRun run);

// The run in bf16 against a naive bf16 evaluation.
void check_bf16_error(GoldenRun run);

}  // namespace reprise::test
