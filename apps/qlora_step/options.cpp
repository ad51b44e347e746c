#include "apps/qlora_step/options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <limits>
#include <sstream>

#include "apps/qlora_step/option_list.h"

namespace reprise::qlora_step {
namespace {

namespace po = boost::program_options;

// Far above every real run, and low enough that products of two of them stay in 64 bits.
constexpr std::int64_t kMostSteps = 1'000'000'000;
constexpr std::int64_t kMostTokens = 1 << 20;
constexpr double kLeastPositive = std::numeric_limits<float>::min();
constexpr std::int64_t kMostRank = 1024;
constexpr std::int64_t kMostThreads = 1024;

// Typed access to the parsed values, with the name of the option in every message.
class Values {
 public:
  explicit Values(const po::variables_map& map) : map_(map) {}

  bool given(const char* name) const { return map_.count(name) != 0 && !map_[name].defaulted(); }
  bool on(const char* name) const { return map_[name].as<bool>(); }

  std::string text(const char* name) const {
    if (map_.count(name) == 0) return {};
    const auto value = map_[name].as<std::string>();
    if (value.empty()) throw UsageError("--" + std::string(name) + " needs a value");
    return value;
  }
  std::int64_t count(const char* name, std::int64_t least, std::int64_t most) const {
    const auto value = map_[name].as<std::int64_t>();
    if (value < least || value > most) {
      throw UsageError("--" + std::string(name) + " " + std::to_string(value) + " must be " +
                       std::to_string(least) + " ... " + std::to_string(most));
    }
    return value;
  }
  std::optional<std::int64_t> optional_count(const char* name, std::int64_t least,
                                             std::int64_t most) const {
    if (map_.count(name) == 0) return std::nullopt;
    return count(name, least, most);
  }
  // A finite number in [least, limit), which it must not leave when it is rounded to FP32: that is
  // what a step computes with.
  double real(const char* name, double least, double limit) const {
    const auto value = map_[name].as<double>();
    std::ostringstream message;
    if (!(value >= least && value < limit)) {
      message << "--" << name << " " << value << " must be at least " << least << " and below "
              << limit;
      throw UsageError(message.str());
    }
    if (static_cast<double>(static_cast<float>(value)) >= limit) {
      message.precision(17);
      message << "--" << name << " " << value << " is " << limit << " in FP32 and must be below it";
      throw UsageError(message.str());
    }
    return value;
  }
  float real32(const char* name, double least, double limit) const {
    return static_cast<float>(real(name, least, limit));
  }
  std::optional<double> optional_real(const char* name, double least, double limit) const {
    if (map_.count(name) == 0) return std::nullopt;
    return real(name, least, limit);
  }
  std::vector<std::string> texts(const char* name) const {
    if (map_.count(name) == 0) return {};
    return map_[name].as<std::vector<std::string>>();
  }

 private:
  const po::variables_map& map_;
};

template <class Value>
struct Choice {
  const char* name;
  Value value;
};

template <class Value, std::size_t N>
Value choose(const Values& values, const char* option, const Choice<Value> (&choices)[N]) {
  const std::string text = values.text(option);
  std::string names;
  for (const Choice<Value>& choice : choices) {
    if (text == choice.name) return choice.value;
    names += (names.empty() ? "" : ", ") + std::string(choice.name);
  }
  throw UsageError("--" + std::string(option) + " " + text + " is unknown; there are " + names);
}

template <class Value, std::size_t N>
const char* name_in(const Choice<Value> (&choices)[N], Value value) {
  for (const Choice<Value>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "?";
}

constexpr Choice<Device> kDevices[] = {{"cpu", Device::kCpu},
                                       {"cuda", Device::kCuda},
                                       {"emulated", Device::kEmulated},
                                       {"reference", Device::kReference}};
constexpr Choice<Schedule> kSchedules[] = {{"constant", Schedule::kConstant},
                                           {"linear", Schedule::kLinear},
                                           {"cosine", Schedule::kCosine}};
constexpr Choice<ComputeType> kComputes[] = {{"bf16", ComputeType::kBF16},
                                             {"fp32", ComputeType::kF32}};
constexpr Choice<LinearMode> kLinears[] = {{"fused", LinearMode::kFused},
                                           {"dequant", LinearMode::kDequant},
                                           {"cached", LinearMode::kCached}};
constexpr Choice<GraphMode> kGraphs[] = {
    {"off", GraphMode::kOff}, {"auto", GraphMode::kAuto}, {"required", GraphMode::kRequired}};
constexpr Choice<bool> kSwitch[] = {{"on", true}, {"off", false}};

std::vector<Projection> parse_modules(const std::string& list) {
  std::vector<Projection> modules;
  std::istringstream stream(list);
  std::string name;
  while (std::getline(stream, name, ',')) {
    const std::optional<Projection> module = parse_projection(name);
    if (!module) {
      throw UsageError("--target-modules: '" + name +
                       "' is unknown; there are q_proj, k_proj, v_proj, o_proj, gate_proj, "
                       "up_proj, down_proj");
    }
    if (std::find(modules.begin(), modules.end(), *module) != modules.end()) {
      throw UsageError("--target-modules names " + name + " twice");
    }
    modules.push_back(*module);
  }
  if (modules.empty()) throw UsageError("--target-modules names no module");
  std::sort(modules.begin(), modules.end());
  return modules;
}

void read_model_and_training(const Values& values, Options& options) {
  options.model = values.text("model");
  options.shape = values.text("shape");
  options.data = values.text("data");
  options.eval_data = values.text("eval-data");
  options.adapter = values.text("adapter");
  options.seed =
      static_cast<std::uint64_t>(values.count("seed", 0, std::numeric_limits<std::int64_t>::max()));
  options.steps = values.optional_count("steps", 1, kMostSteps);
  options.batch = values.optional_count("batch", 1, kMostTokens);
  options.seq = values.optional_count("seq", 2, kMostTokens);
  options.accumulate = values.count("accumulate", 1, kMostTokens);
  options.learning_rate = values.optional_real("lr", 0, std::numeric_limits<float>::max());
  options.schedule = choose(values, "schedule", kSchedules);
  options.warmup = values.count("warmup", 0, kMostSteps);
  options.adamw = {.beta1 = values.real32("beta1", 0, 1),
                   .beta2 = values.real32("beta2", 0, 1),
                   .eps = values.real32("eps", kLeastPositive, 1),
                   .weight_decay = values.real32("weight-decay", 0, 1e6)};
  options.clip = values.real32("clip", 0, std::numeric_limits<float>::max());
  options.rank = values.optional_count("rank", 1, kMostRank);
  options.alpha = values.optional_real("alpha", kLeastPositive, 1e6);
  options.dropout = values.optional_real("dropout", 0, 1);
  if (values.given("target-modules")) {
    options.target_modules = parse_modules(values.text("target-modules"));
  }
}

void read_machine_and_output(const Values& values, Options& options) {
  options.device = choose(values, "device", kDevices);
  if (const std::string mode = values.text("projections"); mode != "separate") {
    throw UsageError("--projections " + mode + " is unknown; the CPU has separate");
  }
  if (values.given("compute")) options.compute = choose(values, "compute", kComputes);
  options.linear = choose(values, "linear", kLinears);
  options.graph = choose(values, "graph", kGraphs);
  options.prune = choose(values, "prune", kSwitch);
  if (const auto threads = values.optional_count("threads", 1, kMostThreads)) {
    options.threads = static_cast<int>(*threads);
  }
  options.out = values.text("out");
  options.metrics = values.text("metrics");
  options.graph_out = values.text("graph-out");
  options.dump = values.text("dump");
  options.samples = values.texts("sample");
  options.sample_tokens = values.count("sample-tokens", 1, kMostTokens);
  options.dry_run = values.on("dry-run");
  options.quiet = values.on("quiet");
  options.tokenize = values.text("tokenize");
  options.eval_nll = values.text("eval-nll");
}

bool is_gguf(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

void require_known_extension(const char* option, const std::filesystem::path& path,
                             std::initializer_list<const char*> known) {
  if (path.empty()) return;
  std::string names;
  for (const char* extension : known) {
    if (path.extension() == extension) return;
    names += (names.empty() ? "" : ", ") + std::string(extension);
  }
  throw UsageError(std::string(option) + " " + path.string() + " must end in " + names);
}

void check_model_and_data(const Options& options) {
  if (!options.model.empty() && !options.shape.empty()) {
    throw UsageError("--model and --shape exclude each other");
  }
  if (!options.shape.empty() && find_shape(options.shape) == nullptr) {
    throw UsageError("--shape " + options.shape + " is unknown; --shape help lists what there is");
  }
  require_known_extension("--data", options.data, {".jsonl", ".safetensors"});
  require_known_extension("--eval-data", options.eval_data, {".jsonl", ".safetensors"});
  require_known_extension("--graph-out", options.graph_out, {".json", ".dot", ".txt"});
  require_known_extension("--dump", options.dump, {".safetensors"});

  const bool text_only = !options.tokenize.empty() || !options.eval_nll.empty();
  if (!options.tokenize.empty() && !options.eval_nll.empty()) {
    throw UsageError("--tokenize and --eval-nll exclude each other");
  }
  const bool has_work =
      text_only || options.dry_run || !options.data.empty() || !options.samples.empty();
  if (!options.model.empty() && !has_work) {
    throw UsageError("--model needs --data (or --dry-run, --sample, --eval-nll, --tokenize)");
  }
  const auto needs_tokenizer = [&](const char* what, bool asked) {
    if (asked && !is_gguf(options.model)) {
      throw UsageError(std::string(what) +
                       " needs a tokenizer, and only a .gguf --model brings one");
    }
  };
  needs_tokenizer("--data FILE.jsonl", options.data.extension() == ".jsonl");
  needs_tokenizer("--eval-data FILE.jsonl", options.eval_data.extension() == ".jsonl");
  needs_tokenizer("--sample", !options.samples.empty());
  needs_tokenizer("--tokenize", !options.tokenize.empty());
  needs_tokenizer("--eval-nll", !options.eval_nll.empty());
}

void check_together(const Options& options) {
  check_model_and_data(options);
  if (options.steps && options.warmup >= *options.steps) {
    throw UsageError("--warmup " + std::to_string(options.warmup) + " must be below --steps " +
                     std::to_string(*options.steps));
  }
  if (options.device != Device::kCpu && options.linear != LinearMode::kFused) {
    throw UsageError("--device " + std::string(name_of(options.device)) +
                     " has no --linear modes; leave --linear out");
  }
  if (!options.dump.empty() && options.accumulate > 1) {
    throw UsageError("--dump shows one micro-batch; it excludes --accumulate above 1");
  }
}

}  // namespace

const char* name_of(Device device) { return name_in(kDevices, device); }
const char* name_of(GraphMode mode) { return name_in(kGraphs, mode); }

CommandLine parse_command_line(int argc, const char* const* argv) {
  po::variables_map map;
  try {
    // No guessing: an abbreviated option may mean another one in a later version.
    const int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    const po::positional_options_description none;
    po::store(po::command_line_parser(argc, argv)
                  .options(option_list())
                  .positional(none)
                  .style(style)
                  .run(),
              map);
    po::notify(map);
  } catch (const po::error& error) {
    throw UsageError(error.what());
  }
  const Values values(map);
  CommandLine line;
  if (map.count("help") != 0) {
    line.request = Request::kHelp;
  } else if (map.count("version") != 0) {
    line.request = Request::kVersion;
  } else if (values.text("shape") == "help") {
    line.request = Request::kListShapes;
  } else {
    read_model_and_training(values, line.options);
    read_machine_and_output(values, line.options);
    check_together(line.options);
  }
  return line;
}

}  // namespace reprise::qlora_step
