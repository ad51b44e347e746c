#include "apps/qlora_step/output_folder.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "reprise/runtime/durable_file.h"

namespace reprise::qlora_step {
namespace {

// The shortest decimal that reads back as the same float: 0.9 instead of 0.8999999761581421.
double as_written(float value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  double written = 0;
  std::from_chars(text, end.ptr, written);
  return written;
}

}  // namespace

void prepare_output_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw UsageError(folder.string() + ": cannot be made a folder: " + error.message());
  require_writable_file(folder / "config.json");
  require_writable_folder(folder / "adapter");
}

std::string config_json(const Options& options, const RunPlan& plan) {
  const TrainerOptions& t = plan.trainer;
  nlohmann::ordered_json modules = nlohmann::ordered_json::array();
  for (const Projection module : t.lora.target_modules) modules.push_back(name_of(module));
  const nlohmann::ordered_json config = {
      {"model", plan.source},
      {"data", options.data.string()},
      {"eval_data", options.eval_data.string()},
      {"adapter", options.adapter.string()},
      {"seed", options.seed},
      {"steps", plan.schedule.steps},
      {"batch", t.shape.batch},
      {"seq", t.shape.seq},
      {"accumulate", t.shape.accumulate},
      {"lr", plan.schedule.peak},
      {"schedule", name_of(plan.schedule.schedule)},
      {"warmup", plan.schedule.warmup},
      {"beta1", as_written(t.adamw.beta1)},
      {"beta2", as_written(t.adamw.beta2)},
      {"eps", as_written(t.adamw.eps)},
      {"weight_decay", as_written(t.adamw.weight_decay)},
      {"clip", as_written(t.clip)},
      {"rank", t.lora.rank},
      {"alpha", t.lora.alpha},
      {"dropout", t.lora.dropout},
      {"target_modules", modules},
      {"device", name_of(options.device)},
      {"isa", name_of(plan.backend.isa)},
      {"threads", plan.backend.threads},
      {"compute", name_of(t.compute)},
      {"linear", name_of(t.linear)},
      {"projections", "separate"},
      {"graph", name_of(t.graph)},
      {"prune", t.prune ? "on" : "off"},
  };
  // Paths may hold any bytes; those that are no UTF-8 are replaced.
  return config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string summary_json(const LoopResult& result, const Evaluation& evaluation) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  const nlohmann::ordered_json summary = {
      {"ending", name_of(result.ending)},
      {"steps", result.steps},
      {"first_loss", result.first_loss},
      {"last_loss", result.last_loss},
      {"eval_before", or_null(evaluation.before)},
      {"eval_after", or_null(evaluation.after)},
      {"seconds", result.seconds},
      {"real_tokens", result.real_tokens},
      {"peak_bytes", peak_resident_bytes()},
  };
  return summary.dump(2) + "\n";
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  write_durably(path, {std::as_bytes(std::span(text))});
}

}  // namespace reprise::qlora_step
