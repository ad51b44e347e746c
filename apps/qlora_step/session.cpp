#include "apps/qlora_step/session.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <ostream>

#include "apps/qlora_step/dump_file.h"
#include "apps/qlora_step/exit_code.h"
#include "apps/qlora_step/interrupt.h"
#include "apps/qlora_step/output_folder.h"
#include "apps/qlora_step/sample.h"
#include "apps/qlora_step/train_loop.h"
#include "reprise/graphs/print.h"
#include "reprise/kernels/thread_pool.h"
#include "reprise/runtime/durable_file.h"
#include "reprise/runtime/place_model.h"

namespace reprise::qlora_step {
namespace {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// What a run consists of, from what was asked for to what computes it.
struct Session {
  const Options& options;
  std::ostream& out;
  std::ostream& warnings;
  std::unique_ptr<const TextModel> text;  // null: the model brings no tokenizer
  TrainingData data;
  RunPlan plan;
  PlannedRun planned;
  // The trainer refers to the other two.
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
  for (const std::filesystem::path& file : {options.graph_out, options.dump}) {
    if (!file.empty()) require_writable_file(file);
  }
  if (const auto file = metrics_path(options); !file.empty()) require_writable_metrics(file);
}

// The step in FILE.json; with accumulation that is the micro-step, and the update is in
// FILE.update.json. Once the model is loaded, the step is the one that runs: the plan had to guess
// the types of the embedding and the head.
void write_graphs(const Session& run) {
  std::filesystem::path path = run.options.graph_out;
  if (path.empty()) return;
  for (const PlannedGraph& planned : run.planned.graphs) {
    const bool loaded = run.trainer != nullptr && &planned == &run.planned.graphs.front();
    write_graph(path, loaded ? run.trainer->step_graph().graph : planned.step.graph,
                loaded ? run.trainer->step_plan() : planned.plan);
    if (!run.options.quiet) run.out << "graph     " << path.string() << "\n";
    path.replace_extension(".update" + path.extension().string());
  }
}

void load(Session& run) {
  const Options& options = run.options;
  ThreadPool pool(run.plan.backend.threads);
  const LoadOptions how{.compute = run.plan.trainer.compute, .pool = &pool};
  run.model = options.model.empty() ? random_model(run.plan.model, options.seed, how)
                                    : load_model(options.model, how);
  if (!options.quiet) {
    for (const std::string& line : run.model.log) run.out << "loading   " << line << "\n";
  }
  run.model = place_model(std::move(run.model), *run.backend);
  run.trainer = std::make_unique<Trainer>(run.model, run.plan.trainer, *run.backend);
  run.trainer->initialise(options.seed);
  if (!options.adapter.empty()) {
    std::vector<float> params(static_cast<std::size_t>(run.trainer->layout().count));
    read_lora_weights(options.adapter, run.trainer->layout(), params.data());
    run.trainer->set_lora_params(params);
  }
}

int dry_run(const Session& run) {
  print_kernels(run.out, run.planned);
  write_graphs(run);
  require_fits(run.planned.memory, *run.backend);
  run.out << "fits      yes\n";
  return kExitDone;
}

// Mean loss of a target token; nothing without evaluation data, or when interrupted.
std::optional<double> evaluate(Trainer& trainer, const std::vector<TokenBatch>& batches) {
  EvaluationResult sum;
  for (const TokenBatch& batch : batches) {
    const EvaluationResult part = trainer.evaluate(batch);
    sum.nll_sum += part.nll_sum;
    sum.target_tokens += part.target_tokens;
    if (interrupt_requested()) return std::nullopt;
  }
  if (sum.target_tokens == 0) return std::nullopt;
  return sum.nll_sum / static_cast<double>(sum.target_tokens);
}

void print_samples(const Session& run, const char* when) {
  for (const std::string& prompt : run.options.samples) {
    if (interrupt_requested()) return;
    run.out << "sample    (" << when << ") " << prompt << "\n"
            << answer(*run.trainer, *run.text, prompt, run.options.sample_tokens) << "\n";
  }
  run.out.flush();
}

void print_result(const Session& run, const LoopResult& result) {
  if (result.steps == 0) return;
  const auto steps = static_cast<double>(result.steps);
  run.out << "loss      " << fixed(result.first_loss, 4) << " -> " << fixed(result.last_loss, 4)
          << " over " << result.steps << " of " << run.plan.schedule.steps << " steps\n"
          << "speed     " << fixed(result.seconds / steps, 3) << " s a step, "
          << fixed(static_cast<double>(result.real_tokens) / result.seconds, 0) << " tokens/s\n"
          << "memory    " << peak_resident_bytes() / (1024 * 1024) << " MiB at the most\n";
}

// Says where the adapter is, and turns the ending into the exit code.
int finish(const Session& run, const LoopResult& result) {
  const std::int64_t wanted = run.plan.schedule.steps;
  const bool saved = !run.options.out.empty() && result.steps > 0;
  const std::string adapter = (run.options.out / "adapter").string();
  if (saved) run.out << "adapter   " << adapter << "\n";
  const std::string kept =
      saved ? "the adapter of step " + std::to_string(result.steps) + " is in " + adapter
            : std::string("nothing was saved");
  if (result.ending == Ending::kNotFinite) {
    throw NotFiniteError("step " + std::to_string(result.steps + 1) +
                         ": the first NaN or infinity is in " + result.bad_node + "; " + kept);
  }
  if (result.ending == Ending::kInterrupted) {
    run.out << "interrupted after step " << result.steps << " of " << wanted << "; " << kept
            << "\n";
    if (saved) {
      const std::int64_t left = wanted - result.steps;
      run.out << "to go on: the same options, but with --adapter " << adapter << " --out "
              << run.options.out.string() << "-2 --steps " << left << " --warmup "
              << std::min(run.plan.schedule.warmup, left - 1)
              << " (schedule, data and the optimiser's moments start anew)\n";
    }
    return kExitInterrupted;
  }
  if (interrupt_requested()) {
    run.out << "interrupted after training, which is complete; " << kept << "\n";
    return kExitInterrupted;
  }
  return kExitDone;
}

LoopResult train_and_save(Session& run) {
  MetricsFile metrics(metrics_path(run.options));
  Progress progress(run.out, progress_style(run.options.quiet), run.plan.schedule.steps);
  const LoopResult result =
      train(*run.trainer, run.data, run.plan.schedule,
            {.metrics = metrics, .progress = progress, .warnings = run.warnings});
  if (!run.options.out.empty() && result.steps > 0) {
    write_lora(run.options.out / "adapter", run.plan.trainer.lora, run.trainer->layout(),
               run.trainer->lora_params().data(), run.plan.source);
  }
  print_result(run, result);
  return result;
}

int train_and_report(Session& run) {
  const Options& options = run.options;
  const std::vector<TokenBatch> held_out =
      evaluation_data(options, run.plan.model, run.data.shape, run.text.get());
  Evaluation evaluation{.before = evaluate(*run.trainer, held_out), .after = {}};
  if (evaluation.before) {
    run.out << "eval      " << fixed(*evaluation.before, 4) << " before" << std::endl;
  }
  print_samples(run, "before");
  if (!options.dump.empty()) {
    write_dump(options.dump, run.trainer->dump(run.data.batches_of_step(1).front()));
    run.out << "dump      " << options.dump.string() << "\n";
  }
  const LoopResult result = train_and_save(run);
  if (result.ending == Ending::kComplete) {
    evaluation.after = evaluate(*run.trainer, held_out);
    if (evaluation.before && evaluation.after) {
      run.out << "eval      " << fixed(*evaluation.before, 4) << " -> "
              << fixed(*evaluation.after, 4) << "\n";
    }
    print_samples(run, "after");
  }
  if (!options.out.empty()) {
    write_text(options.out / "summary.json", summary_json(result, evaluation));
  }
  return finish(run, result);
}

int run_loaded(Session& run) {
  const Options& options = run.options;
  if (!options.eval_nll.empty()) {
    return print_nll(*run.trainer, *run.text, options.eval_nll, run.data.shape.seq, run.out);
  }
  write_graphs(run);
  if (!options.out.empty()) {
    write_text(options.out / "config.json", config_json(options, run.plan));
  }
  if (!options.model.empty() && options.data.empty()) {
    print_samples(run, "no training");
    return kExitDone;
  }
  return train_and_report(run);
}

}  // namespace

int run(const Options& options, std::ostream& out, std::ostream& warnings) {
  Session run{.options = options,
              .out = out,
              .warnings = warnings,
              .text = text_model(options),
              .data = {},
              .plan = {},
              .planned = {},
              .backend = {},
              .model = {},
              .trainer = {}};
  if (!options.tokenize.empty()) return print_tokens(*run.text, options.tokenize, out);

  const ModelSource source = model_source(options);
  run.data = training_data(options, source.config, run.text.get());
  run.plan = make_run_plan(options, source, run.data.shape);
  run.backend = make_backend(run.plan);
  run.planned = plan_run(run.plan.model, run.plan.trainer, run.plan.embedding_dtype, *run.backend,
                         {.evaluation = !options.eval_data.empty() || !options.eval_nll.empty(),
                          .dump = !options.dump.empty()});
  const MemoryReport& memory = run.planned.memory;
  if (!options.quiet) {
    print_plan(out, run.plan, run.backend->name(), run.data.description);
    out << "memory    " << to_string(memory) << std::endl;
  }
  if (options.dry_run) return dry_run(run);
  require_fits(memory, *run.backend);
  require_writable_outputs(options);
  load(run);
  return run_loaded(run);
}

}  // namespace reprise::qlora_step
