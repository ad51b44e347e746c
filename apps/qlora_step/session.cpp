#include "apps/qlora_step/session.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <ostream>

#include "apps/qlora_step/dump_file.h"
#include "apps/qlora_step/exit_code.h"
#include "apps/qlora_step/output_folder.h"
#include "apps/qlora_step/sample.h"
#include "apps/qlora_step/train_loop.h"
#include "reprise/graphs/print.h"
#include "reprise/kernels/thread_pool.h"
#include "reprise/runtime/durable_file.h"

namespace reprise::qlora_step {
namespace {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Model, backend and trainer of a run; they refer to each other, so their addresses stay.
struct Machine {
  std::unique_ptr<Backend> backend;
  Model model;
  std::unique_ptr<Trainer> trainer;
};

// The path that a metrics file takes; empty: none.
std::filesystem::path metrics_path(const Options& options) {
  if (!options.metrics.empty() || options.out.empty()) return options.metrics;
  return options.out / "metrics.jsonl";
}

void require_writable_outputs(const Options& options) {
  if (!options.out.empty()) prepare_output_folder(options.out);
  for (const std::filesystem::path& file :
       {metrics_path(options), options.graph_out, options.dump}) {
    if (!file.empty()) require_writable_file(file);
  }
}

void load(Machine& machine, const Options& options, const RunPlan& plan, std::ostream& out) {
  ThreadPool pool(plan.backend.threads);
  const LoadOptions how{.compute = plan.trainer.compute, .pool = &pool};
  machine.model = options.model.empty() ? random_model(plan.model, options.seed, how)
                                        : load_model(options.model, how);
  if (!options.quiet) {
    for (const std::string& line : machine.model.log) out << "loading   " << line << "\n";
  }
  machine.trainer = std::make_unique<Trainer>(machine.model, plan.trainer, *machine.backend);
  machine.trainer->initialise(options.seed);
  if (!options.adapter.empty()) {
    read_lora_weights(options.adapter, machine.trainer->layout(),
                      machine.trainer->lora_params().data());
  }
}

int dry_run(const Options& options, const RunPlan& plan, const Backend& backend,
            std::ostream& out) {
  const PlannedStep planned = plan_step(plan, backend);
  print_kernels(out, planned.step.graph, planned.plan);
  if (!options.graph_out.empty()) {
    write_graph(options.graph_out, planned.step.graph, planned.plan);
    out << "graph     " << options.graph_out.string() << "\n";
  }
  return kExitDone;
}

// Mean loss of a target token; nothing without evaluation data.
std::optional<double> evaluate(Trainer& trainer, const std::vector<TokenBatch>& batches) {
  EvaluationResult sum;
  for (const TokenBatch& batch : batches) {
    const EvaluationResult part = trainer.evaluate(batch);
    sum.nll_sum += part.nll_sum;
    sum.target_tokens += part.target_tokens;
  }
  if (sum.target_tokens == 0) return std::nullopt;
  return sum.nll_sum / static_cast<double>(sum.target_tokens);
}

void print_samples(const Options& options, Trainer& trainer, const TextModel* text,
                   const char* when, std::ostream& out) {
  for (const std::string& prompt : options.samples) {
    out << "sample    (" << when << ") " << prompt << "\n"
        << answer(trainer, *text, prompt, options.sample_tokens) << "\n";
  }
  out.flush();
}

void print_summary(const LoopResult& result, const RunPlan& plan, std::ostream& out) {
  if (result.steps == 0) return;
  const auto steps = static_cast<double>(result.steps);
  out << "loss      " << fixed(result.first_loss, 4) << " -> " << fixed(result.last_loss, 4)
      << " over " << result.steps << " of " << plan.schedule.steps << " steps\n"
      << "speed     " << fixed(result.seconds / steps, 3) << " s a step, "
      << fixed(static_cast<double>(result.real_tokens) / result.seconds, 0) << " tokens/s\n"
      << "memory    " << peak_resident_bytes() / (1024 * 1024) << " MiB at the most\n";
}

int finish(const Options& options, const RunPlan& plan, const LoopResult& result,
           std::ostream& out) {
  const bool saved = !options.out.empty() && result.steps > 0;
  const std::string adapter = (options.out / "adapter").string();
  if (saved) out << "adapter   " << adapter << "\n";
  const std::string kept =
      saved ? "the adapter of step " + std::to_string(result.steps) + " is in " + adapter
            : std::string("nothing was saved");
  if (result.ending == Ending::kNotFinite) {
    throw NotFiniteError("step " + std::to_string(result.steps + 1) +
                         ": the first NaN or infinity is in " + result.bad_node + "; " + kept);
  }
  if (result.ending == Ending::kInterrupted) {
    out << "interrupted after step " << result.steps << " of " << plan.schedule.steps << "; "
        << kept << "\n";
    if (saved) {
      out << "to go on: the same options with --adapter " << adapter << " --steps "
          << plan.schedule.steps - result.steps << " (the optimiser's moments start anew)\n";
    }
    return kExitInterrupted;
  }
  return kExitDone;
}

int train_and_report(const Options& options, const RunPlan& plan, const TrainingData& data,
                     const TextModel* text, Machine& machine, std::ostream& out,
                     std::ostream& warnings) {
  Trainer& trainer = *machine.trainer;
  const std::vector<TokenBatch> held_out = evaluation_data(options, plan.model, data.shape, text);
  Evaluation evaluation{.before = evaluate(trainer, held_out), .after = {}};
  if (evaluation.before) {
    out << "eval      " << fixed(*evaluation.before, 4) << " before" << std::endl;
  }
  print_samples(options, trainer, text, "before", out);
  if (!options.dump.empty()) {
    write_dump(options.dump, trainer.dump(data.batches_of_step(1).front()));
    out << "dump      " << options.dump.string() << "\n";
  }

  MetricsFile metrics(metrics_path(options));
  Progress progress(out, progress_style(options.quiet), plan.schedule.steps);
  const LoopResult result = train(trainer, data, plan.schedule,
                                  {.metrics = metrics, .progress = progress, .warnings = warnings});
  if (!options.out.empty() && result.steps > 0) {
    write_lora(options.out / "adapter", plan.trainer.lora, trainer.layout(),
               trainer.lora_params().data(), plan.source);
  }
  print_summary(result, plan, out);
  if (result.ending == Ending::kComplete) {
    evaluation.after = evaluate(trainer, held_out);
    if (evaluation.after) {
      out << "eval      " << fixed(*evaluation.before, 4) << " -> " << fixed(*evaluation.after, 4)
          << "\n";
    }
    print_samples(options, trainer, text, "after", out);
  }
  if (!options.out.empty()) {
    write_text(options.out / "summary.json", summary_json(result, evaluation));
  }
  return finish(options, plan, result, out);
}

}  // namespace

int run(const Options& options, std::ostream& out, std::ostream& warnings) {
  const std::unique_ptr<const TextModel> text = text_model(options);
  if (!options.tokenize.empty()) return print_tokens(*text, options.tokenize, out);

  const ModelSource source = model_source(options);
  const TrainingData data = training_data(options, source.config, text.get());
  const RunPlan plan = make_run_plan(options, source, data.shape);
  Machine machine{.backend = make_backend(plan), .model = {}, .trainer = {}};
  const MemoryReport memory =
      plan_memory(plan.model, plan.trainer, plan.embedding_dtype, *machine.backend);
  if (!options.quiet) {
    print_plan(out, plan, machine.backend->name(), data.description);
    out << "memory    " << to_string(memory) << std::endl;
  }
  if (options.dry_run) return dry_run(options, plan, *machine.backend, out);
  require_fits(memory);
  require_writable_outputs(options);

  load(machine, options, plan, out);
  if (!options.eval_nll.empty()) {
    return print_nll(*machine.trainer, *text, options.eval_nll, data.shape.seq, out);
  }
  if (!options.graph_out.empty()) {
    write_graph(options.graph_out, machine.trainer->step_graph().graph,
                machine.trainer->step_plan());
    if (!options.quiet) out << "graph     " << options.graph_out.string() << "\n";
  }
  if (!options.out.empty()) write_text(options.out / "config.json", config_json(options, plan));
  if (!options.model.empty() && options.data.empty()) {
    print_samples(options, *machine.trainer, text.get(), "no training", out);
    return kExitDone;
  }
  return train_and_report(options, plan, data, text.get(), machine, out, warnings);
}

}  // namespace reprise::qlora_step
