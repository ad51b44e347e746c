#include "apps/qlora_step/run_plan.h"

#include <cstdlib>
#include <map>
#include <ostream>
#include <sstream>

#include "reprise/kernels/thread_pool.h"

namespace reprise::qlora_step {
namespace {

// The made-up model has no knowledge to lose, so it takes a larger rate than published ones: 60
// steps of 5e-3 bring its loss from 5.9 to 1.1, while 2e-2 leaves it at 4.2.
constexpr double kEmbeddedLearningRate = 5e-3;
constexpr double kLearningRate = 2e-4;
constexpr std::int64_t kEmbeddedSteps = 60;
constexpr std::int64_t kSteps = 100;

std::string shortened(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

template <class Value>
void require_same(const char* option, const std::optional<Value>& given, double found) {
  if (!given || static_cast<double>(*given) == found) return;
  throw UsageError("--" + std::string(option) + " " + shortened(static_cast<double>(*given)) +
                   " contradicts --adapter, which has " + shortened(found) + "; leave it out");
}

std::string module_list(const std::vector<Projection>& modules) {
  if (modules.size() == kProjections) return "all seven projections";
  std::string list;
  for (const Projection module : modules)
    list += (list.empty() ? "" : ", ") + std::string(name_of(module));
  return list;
}

}  // namespace

ModelSource model_source(const Options& options) {
  if (!options.model.empty()) return {load_model_config(options.model), options.model.string()};
  const std::string name = options.shape.empty() ? "tiny" : options.shape;
  return {find_shape(name)->config, "shape " + name + ", seed " + std::to_string(options.seed)};
}

LoraConfig resolve_lora(const Options& options) {
  LoraConfig lora;
  if (options.adapter.empty()) {
    lora.rank = options.rank.value_or(lora.rank);
    lora.alpha = options.alpha.value_or(lora.alpha);
    lora.dropout = options.dropout.value_or(lora.dropout);
    if (options.target_modules) lora.target_modules = *options.target_modules;
    return lora;
  }
  lora = read_lora_config(options.adapter);
  require_same("rank", options.rank, static_cast<double>(lora.rank));
  require_same("alpha", options.alpha, lora.alpha);
  require_same("dropout", options.dropout, lora.dropout);
  if (options.target_modules) {
    for (const Projection module : kAllProjections) {
      const auto& given = *options.target_modules;
      const bool wanted = std::find(given.begin(), given.end(), module) != given.end();
      if (wanted != lora.targets(module)) {
        throw UsageError("--target-modules contradicts --adapter, which has " +
                         module_list(lora.target_modules) + "; leave it out");
      }
    }
  }
  return lora;
}

Isa resolve_isa() {
  const Isa detected = detect_isa();
  const char* wanted = std::getenv("REPRISE_ISA");
  if (wanted == nullptr || *wanted == '\0') return detected;
  const std::optional<Isa> isa = parse_isa(wanted);
  if (!isa) {
    throw UsageError(std::string("REPRISE_ISA=") + wanted +
                     " is unknown; there are generic, avx2, avx512, avx512_bf16, amx");
  }
  if (*isa > detected) {
    throw UsageError(std::string("REPRISE_ISA=") + wanted + ": the best this CPU has is " +
                     name_of(detected));
  }
  return *isa;
}

std::unique_ptr<Backend> make_backend(const RunPlan& plan) {
  switch (plan.device) {
    case Device::kReference:
      return make_reference_backend();
    case Device::kCuda:
      return make_cuda_backend();
    case Device::kEmulated:
      return make_emulated_backend();
    case Device::kCpu:
      break;
  }
  return make_cpu_backend(plan.backend);
}

RunPlan make_run_plan(const Options& options, const ModelSource& source, const DataShape& data) {
  const bool embedded = options.embedded_default();
  const Isa isa = resolve_isa();
  const bool device = options.device == Device::kCuda || options.device == Device::kEmulated;
  const ComputeType compute = options.compute.value_or(
      device || isa >= Isa::kAvx512Bf16 ? ComputeType::kBF16 : ComputeType::kF32);
  RunPlan plan{
      .model = source.config,
      .source = source.name,
      .embedding_dtype = activation_dtype(compute),
      .trainer = {.shape = {.batch = data.batch, .seq = data.seq, .accumulate = options.accumulate},
                  .compute = compute,
                  .lora = resolve_lora(options),
                  .adamw = options.adamw,
                  .clip = options.clip,
                  .prune = options.prune,
                  .seed = options.seed,
                  .graph = options.graph,
                  .linear = options.linear},
      .schedule = {.schedule = options.schedule,
                   .peak = options.learning_rate.value_or(embedded ? kEmbeddedLearningRate
                                                                   : kLearningRate),
                   .warmup = options.warmup,
                   .steps = options.steps.value_or(embedded ? kEmbeddedSteps : kSteps)},
      .device = options.device,
      .backend = {.isa = isa,
                  .linear = options.linear,
                  .threads = options.threads.value_or(available_threads())},
  };
  if (plan.schedule.warmup >= plan.schedule.steps) {
    throw UsageError("--warmup " + std::to_string(plan.schedule.warmup) +
                     " must be below --steps, which is " + std::to_string(plan.schedule.steps));
  }
  if (data.seq > plan.model.max_position_embeddings) {
    throw UsageError("--seq " + std::to_string(data.seq) + " is more than the " +
                     std::to_string(plan.model.max_position_embeddings) +
                     " positions of the model");
  }
  return plan;
}

void print_plan(std::ostream& out, const RunPlan& plan, const std::string& backend,
                const std::string& data) {
  const ModelConfig& m = plan.model;
  const TrainerOptions& t = plan.trainer;
  out << "model     " << plan.source << ": " << m.num_hidden_layers << " layers, hidden "
      << m.hidden_size << ", vocabulary " << m.vocab_size << ", "
      << static_cast<double>(m.projection_weights()) * 1e-6 << " M weights in NF4\n"
      << "adapter   rank " << t.lora.rank << ", alpha " << t.lora.alpha << ", dropout "
      << t.lora.dropout << ", " << module_list(t.lora.target_modules) << "\n"
      << "data      " << data << "\n"
      << "step      " << t.shape.batch << " x " << t.shape.seq << " tokens";
  if (t.shape.accumulate > 1) out << ", " << t.shape.accumulate << " times";
  out << "; AdamW, " << name_of(plan.schedule.schedule) << " rate " << plan.schedule.peak << ", "
      << plan.schedule.steps << " steps\n"
      << "device    " << backend << ", " << name_of(t.compute) << " compute";
  if (plan.device == Device::kCpu) out << ", " << name_of(t.linear) << " NF4 products";
  out << "\n";
}

void print_kernels(std::ostream& out, const PlannedRun& run) {
  for (const PlannedGraph& graph : run.graphs) {
    const std::vector<Node>& nodes = graph.step.graph.nodes;
    std::map<std::string, std::map<std::string, std::int64_t>> nodes_of;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      ++nodes_of[op_name(nodes[i].op)][graph.plan.nodes.at(i).implementation];
    }
    out << "kernels   " << nodes.size() << " nodes in the graph " << graph.step.graph.name << "\n";
    for (const auto& [op, implementations] : nodes_of) {
      for (const auto& [name, count] : implementations) {
        out << "  " << op << ": " << count << " x " << name << "\n";
      }
    }
  }
}

}  // namespace reprise::qlora_step
