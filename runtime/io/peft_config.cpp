// adapter_config.json of PEFT. What changes the arithmetic and is not supported is refused by name;
// so is any key that is not known here and is switched on, since it may do so.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "reprise/kernels/error.h"
#include "reprise/runtime/lora.h"
#include "reprise/runtime/quoted.h"
#include "runtime/io/peft_files.h"
#include "runtime/io/strict_json.h"

namespace reprise {
namespace {

using nlohmann::json;

// Read below, or without effect on what the adapter computes once it is saved.
constexpr std::array<std::string_view, 20> kUnderstood = {"r",
                                                          "lora_alpha",
                                                          "lora_dropout",
                                                          "target_modules",
                                                          "peft_type",
                                                          "bias",
                                                          "task_type",
                                                          "base_model_name_or_path",
                                                          "revision",
                                                          "inference_mode",
                                                          "auto_mapping",
                                                          "peft_version",
                                                          "loftq_config",
                                                          "init_lora_weights",
                                                          "eva_config",
                                                          "corda_config",
                                                          "megatron_core",
                                                          "lora_ga_config",
                                                          "runtime_config",
                                                          "qalora_group_size"};

// null, false, {}, [] and "" leave a feature off.
bool is_off(const json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || (value.is_structured() && value.empty());
}

// Initialisations that leave the base weights alone. PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA change
// them, so that the saved matrices belong to another base.
bool keeps_base(const json& init) {
  if (init.is_boolean() || init.is_null()) return true;
  return init == "gaussian" || init == "eva" || init == "orthogonal";
}

void require_plain_lora(const json& config, const std::string& where) {
  const std::string type = json_string(config, "peft_type", where);
  if (type != "LORA") {
    throw InputError(where + ": \"peft_type\" is " + in_quotes(type) +
                     ", only \"LORA\" is supported");
  }
  if (config.contains("bias") && config["bias"] != "none") {
    throw InputError(where + ": \"bias\" is " + json_excerpt(config["bias"]) +
                     ", only \"none\" is supported");
  }
  if (config.contains("init_lora_weights") && !keeps_base(config["init_lora_weights"])) {
    throw InputError(where + ": \"init_lora_weights\" is " +
                     json_excerpt(config["init_lora_weights"]) +
                     ", which changes the base model's weights and is not supported");
  }
  for (const auto& [key, value] : config.items()) {
    const bool understood =
        std::find(kUnderstood.begin(), kUnderstood.end(), key) != kUnderstood.end();
    if (!understood && !is_off(value)) {
      throw InputError(where + ": " + in_quotes(key) + " is " + json_excerpt(value) +
                       ", which is not supported; only plain LoRA is");
    }
  }
}

// A module as "target_modules" names it: in every layer or in one.
struct Target {
  Projection projection = Projection::kNone;
  std::optional<std::int64_t> layer;
};

// The N of "model.layers.N.".
std::optional<std::int64_t> layer_of(std::string_view module) {
  constexpr std::string_view kBefore = "model.layers.";
  if (!module.starts_with(kBefore)) return std::nullopt;
  std::int64_t layer = 0;
  const char* const end = module.data() + module.size();
  const auto [after, error] = std::from_chars(module.data() + kBefore.size(), end, layer);
  return error == std::errc() && layer >= 0 ? std::optional(layer) : std::nullopt;
}

// "q_proj", or with its parent, "self_attn.q_proj": both mean that module in every layer. Or its
// full name, "model.layers.0.self_attn.q_proj".
Target parse_target(const json& name, const std::string& where) {
  if (name.is_string()) {
    const std::string& text = name.get_ref<const std::string&>();
    const std::optional<std::int64_t> layer = layer_of(text);
    for (const Projection projection : kAllProjections) {
      const std::string module = module_name(0, projection);
      const std::string with_parent = module.substr(std::string_view("model.layers.0.").size());
      if (text == name_of(projection) || text == with_parent) return {projection, std::nullopt};
      if (layer && text == module_name(*layer, projection)) return {projection, layer};
    }
  }
  throw InputError(where + ": \"target_modules\" names " + json_excerpt(name) +
                   "; supported are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
}

// PEFT writes out what "all-linear" stood for in a model of few layers: every module of every layer
// by its full name. Layers 0 to N may be all there are, and the weights then tell: one that is
// missing is refused there. Any other choice leaves a layer out.
void require_first_layers(const std::vector<Target>& targets, const std::string& where) {
  std::map<Projection, std::set<std::int64_t>> layers;
  std::int64_t last = 0;
  for (const Target& target : targets) {
    if (!target.layer) continue;
    layers[target.projection].insert(*target.layer);
    last = std::max(last, *target.layer);
  }
  for (const auto& [projection, named] : layers) {
    if (static_cast<std::int64_t>(named.size()) - 1 == last) continue;
    throw InputError(where + ": \"target_modules\" names " + std::string(name_of(projection)) +
                     " in some layers only, which is not supported; only every layer is");
  }
}

std::vector<Projection> read_targets(const json& targets, const std::string& where) {
  if (targets == "all-linear") return {kAllProjections.begin(), kAllProjections.end()};
  if (targets.is_string()) {
    throw InputError(where + ": \"target_modules\" is the pattern " + json_excerpt(targets) +
                     ", which is not supported; write the list of modules that it matches");
  }
  if (!targets.is_array() || targets.empty()) {
    throw InputError(where + ": \"target_modules\" must be a list of modules, found " +
                     json_excerpt(targets));
  }
  std::vector<Target> parsed;
  for (const json& name : targets) parsed.push_back(parse_target(name, where));
  require_first_layers(parsed, where);
  LoraConfig named;
  named.target_modules.clear();
  for (const Target& target : parsed) named.target_modules.push_back(target.projection);
  std::vector<Projection> ordered;
  for (const Projection projection : kAllProjections) {
    if (named.targets(projection)) ordered.push_back(projection);
  }
  return ordered;
}

}  // namespace

LoraConfig read_lora_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kAdapterConfigName;
  const json config = read_strict_json(path);
  const std::string where = in_quotes(path);
  if (!config.is_object()) throw InputError(where + ": expected a JSON object");
  require_plain_lora(config, where);

  LoraConfig lora;
  // Far above any rank in use; keeps rank * features within what a size can hold.
  lora.rank = json_integer(config, "r", {1, 65536}, where);
  lora.alpha = json_number(config, "lora_alpha", where);
  const float scale = lora.scale();
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw InputError(where + ": \"lora_alpha\" is " + json_excerpt(config["lora_alpha"]) +
                     ", must be above 0");
  }
  lora.dropout = config.contains("lora_dropout") ? json_number(config, "lora_dropout", where) : 0;
  if (!(lora.dropout >= 0 && lora.dropout < 1)) {
    throw InputError(where + ": \"lora_dropout\" is " + json_excerpt(config["lora_dropout"]) +
                     ", must be in [0, 1)");
  }
  lora.target_modules = read_targets(json_member(config, "target_modules", where), where);
  return lora;
}

std::string peft_config_text(const LoraConfig& lora, const std::string& base_model) {
  json targets = json::array();
  for (const Projection projection : lora.target_modules) targets.push_back(name_of(projection));
  std::sort(targets.begin(), targets.end());
  // Whole numbers without a fraction, as PEFT writes what it was given as an integer.
  const bool whole = lora.alpha == std::floor(lora.alpha) && std::abs(lora.alpha) < 0x1p53;
  const json config = {
      {"alpha_pattern", json::object()},
      {"auto_mapping", nullptr},
      {"base_model_name_or_path", base_model.empty() ? json() : json(base_model)},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"layer_replication", nullptr},
      {"layers_pattern", nullptr},
      {"layers_to_transform", nullptr},
      {"loftq_config", json::object()},
      {"lora_alpha", whole ? json(static_cast<std::int64_t>(lora.alpha)) : json(lora.alpha)},
      {"lora_dropout", lora.dropout},
      {"megatron_config", nullptr},
      {"megatron_core", "megatron.core"},
      {"modules_to_save", nullptr},
      {"peft_type", "LORA"},
      {"r", lora.rank},
      {"rank_pattern", json::object()},
      {"revision", nullptr},
      {"target_modules", targets},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", false},
  };
  // A path is bytes and JSON is UTF-8: what is not becomes U+FFFD, it is for people only.
  return config.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace reprise
