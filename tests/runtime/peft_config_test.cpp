// adapter_config.json: what is read, and what is refused by name.
#include "tests/runtime/golden_adapter.h"

namespace reprise::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

BOOST_AUTO_TEST_SUITE(peft_config)

BOOST_AUTO_TEST_CASE(target_modules_in_each_spelling) {
  AdapterCopy adapter;
  const auto targets = [&](const json& value) {
    adapter.set("target_modules", value);
    return read_lora_config(adapter.path()).target_modules;
  };
  const std::vector<Projection> q_and_up = {Projection::kQ, Projection::kUp};
  BOOST_CHECK(targets("all-linear").size() == 7);
  BOOST_CHECK(targets({"up_proj", "q_proj"}) == q_and_up);
  BOOST_CHECK(targets({"mlp.up_proj", "self_attn.q_proj", "q_proj"}) == q_and_up);
  const auto refused = [&](const json& value, std::string_view text) {
    check_refused([&] { targets(value); }, {"adapter_config.json\"", "\"target_modules\"", text});
  };
  refused({"lm_head"}, "names \"lm_head\"");
  refused({"q_proj", 1}, "names 1");
  // By their full names, as PEFT writes "all-linear" out for a model of two layers.
  const auto full = [](int layer, const std::string& module) {
    return "model.layers." + std::to_string(layer) + "." + module;
  };
  const std::string q = "self_attn.q_proj", up = "mlp.up_proj";
  BOOST_CHECK(targets({full(1, up), full(0, q), full(0, up), full(1, q)}) == q_and_up);
  BOOST_CHECK(targets({full(0, up), "q_proj"}) == q_and_up);
  refused({full(1, q)}, "q_proj in some layers only");
  refused({full(0, q), full(2, q)}, "q_proj in some layers only");
  refused({full(0, q), full(0, up), full(1, q)}, "up_proj in some layers only");
  refused({full(0, "q_proj")}, "names \"model.layers.0.q_proj\"");
  refused({full(0, q), full(0, up), full(1, up)}, "q_proj in some layers only");
  refused({full(-1, q), full(1, q)}, "names \"model.layers.-1.");
  refused({"model.layers.00.self_attn.q_proj"}, "names \"model.layers.00.");
  refused({"model.layers..self_attn.q_proj"}, "names \"model.layers..");
  refused({"model.layers.99999999999999999999.self_attn.q_proj"}, "names \"model.layers.999");
  refused({"xq_proj"}, "names \"xq_proj\"");
  refused(".*_proj", "pattern \".*_proj\"");
  refused(json::array(), "must be a list");
  refused(nullptr, "must be a list");
  adapter.erase("target_modules");
  check_refused([&] { read_lora_config(adapter.path()); }, {"\"target_modules\" is missing"});
}

BOOST_AUTO_TEST_CASE(options_that_change_the_arithmetic_are_refused_by_name) {
  const std::pair<const char*, json> cases[] = {
      {"peft_type", "IA3"},
      {"use_dora", true},
      {"use_rslora", true},
      {"rank_pattern", {{"q_proj", 4}}},
      {"alpha_pattern", {{"x", 1}}},
      {"bias", "all"},
      {"bias", "lora_only"},
      {"modules_to_save", {"lm_head"}},
      {"fan_in_fan_out", true},
      {"layers_to_transform", {0}},
      {"layers_to_transform", 0},
      {"layers_pattern", "h"},
      {"lora_bias", true},
      {"layer_replication", {{0, 1}}},
      {"exclude_modules", {"q_proj"}},
      {"target_parameters", {"w"}},
      {"trainable_token_indices", {1}},
      {"use_qalora", true},
      {"init_lora_weights", "pissa"},
      {"init_lora_weights", "olora"},
      {"megatron_config", {{"a", 1}}},
      {"an_option_of_tomorrow", 1},
  };
  for (const auto& [key, value] : cases) {
    AdapterCopy adapter;
    adapter.set(key, value);
    check_refused([&] { read_lora_config(adapter.path()); },
                  {"adapter_config.json\"", std::string("\"") + key + "\"", "support"});
  }
}

BOOST_AUTO_TEST_CASE(options_without_effect_are_accepted) {
  const std::pair<const char*, json> cases[] = {
      {"base_model_name_or_path", nullptr},
      {"base_model_name_or_path", "/some/other/machine"},
      {"auto_mapping", {{"base_model_class", "X"}}},
      {"init_lora_weights", "gaussian"},
      {"inference_mode", false},
      {"modules_to_save", json::array()},
      {"an_option_of_tomorrow", nullptr},
      {"an_option_of_tomorrow", false},
      {"lora_alpha", 16.0},
  };
  for (const auto& [key, value] : cases) {
    AdapterCopy adapter;
    adapter.set(key, value);
    BOOST_CHECK_EQUAL(read_lora_config(adapter.path()).rank, 8);
  }
}

BOOST_AUTO_TEST_CASE(numbers_of_the_configuration_are_checked) {
  const auto refused = [](const char* key, const json& value) {
    AdapterCopy adapter;
    adapter.set(key, value);
    check_refused([&] { read_lora_config(adapter.path()); },
                  {"adapter_config.json\"", std::string("\"") + key + "\""});
  };
  for (const json& value : {json(0), json(-1), json(65537), json(1.5), json("8"), json(nullptr),
                            json(INT64_MAX), json(UINT64_MAX)}) {
    refused("r", value);
  }
  for (const json& value : {json(0), json(-16), json(1e300), json("x"), json(true)}) {
    refused("lora_alpha", value);
  }
  for (const json& value : {json(1), json(-0.1), json(1.5), json("0")}) {
    refused("lora_dropout", value);
  }
  for (const char* key : {"r", "lora_alpha", "peft_type"}) {
    AdapterCopy adapter;
    adapter.erase(key);
    check_refused([&] { read_lora_config(adapter.path()); },
                  {std::string("\"") + key + "\" is missing"});
  }
  AdapterCopy adapter;
  write_bytes(adapter.config_path(), R"({"r":8,"r":16})");
  check_refused([&] { read_lora_config(adapter.path()); }, {"duplicate key \"r\""});
  write_bytes(adapter.config_path(), "[]");
  check_refused([&] { read_lora_config(adapter.path()); }, {"expected a JSON object"});
  fs::remove(adapter.config_path());
  check_refused([&] { read_lora_config(adapter.path()); },
                {"adapter_config.json\"", "No such file"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
