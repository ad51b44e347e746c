// The folder of --out: adapter/ (PEFT), metrics.jsonl, config.json, summary.json. It is tried out
// before the long work starts, so that a wrong path costs nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "apps/qlora_step/run_plan.h"
#include "apps/qlora_step/train_loop.h"

namespace reprise::qlora_step {

// Makes the folder if need be and finds out whether its files could be written. Throws UsageError
// naming the path and the reason.
void prepare_output_folder(const std::filesystem::path& folder);

// The options as resolved, as JSON.
std::string config_json(const Options& options, const RunPlan& plan);

// What the run came to, as JSON; null where nothing was measured.
struct Evaluation {
  std::optional<double> before, after;  // mean loss of a target token
};
std::string summary_json(const LoopResult& result, const Evaluation& evaluation);

// Writes `text` whole or not at all.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace reprise::qlora_step
