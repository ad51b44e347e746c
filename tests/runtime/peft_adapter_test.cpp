#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "reprise/runtime/lora.h"
#include "reprise/runtime/safetensors.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The shapes of the golden models, see tests/data/README.md.
ModelConfig golden_model(const std::string& name) {
  ModelConfig model;
  const bool qwen2 = name == "qwen2";
  model.architecture = qwen2 ? Architecture::kQwen2 : Architecture::kLlama;
  model.vocab_size = qwen2 ? 320 : 256;
  model.hidden_size = qwen2 ? 128 : 192;
  model.intermediate_size = 320;
  model.num_hidden_layers = 2;
  model.num_attention_heads = qwen2 ? 4 : 6;
  model.num_key_value_heads = 2;
  model.head_dim = 32;
  model.max_position_embeddings = 256;
  return model;
}

const std::string kAdapter = "qwen2/train-nf4/adapter-init";
const std::string kKey = "base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight";

// A copy of a golden adapter that a test may damage.
class AdapterCopy {
 public:
  AdapterCopy() {
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
      fs::copy(golden(kAdapter) / name, path() / name);
    }
  }
  const fs::path& path() const { return folder_.path(); }
  fs::path config_path() const { return path() / "adapter_config.json"; }
  fs::path weights_path() const { return path() / "adapter_model.safetensors"; }
  json config() const { return json::parse(read_bytes(config_path())); }
  void set(const char* key, const json& value) {
    json changed = config();
    changed[key] = value;
    write_bytes(config_path(), changed.dump());
  }
  void erase(const char* key) {
    json changed = config();
    changed.erase(key);
    write_bytes(config_path(), changed.dump());
  }
  // Writes the weights again, each entry as `change` leaves it; an empty name drops it.
  void rewrite(const std::function<void(SafetensorsEntry&)>& change) {
    const SafetensorsFile file(golden(kAdapter) / "adapter_model.safetensors");
    std::vector<SafetensorsEntry> entries;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      SafetensorsEntry entry{tensor.name, tensor.dtype_name, tensor.shape, tensor.data};
      change(entry);
      if (!entry.name.empty()) entries.push_back(entry);
    }
    write_safetensors(weights_path(), entries);
  }

 private:
  TemporaryFolder folder_;
};

std::vector<float> read_all(const fs::path& directory, const LoraLayout& layout) {
  std::vector<float> params(static_cast<std::size_t>(layout.count), -7);
  read_lora_weights(directory, layout, params.data());
  return params;
}

BOOST_AUTO_TEST_SUITE(lora)

BOOST_AUTO_TEST_CASE(layout_places_every_matrix_once) {
  LoraConfig config;
  config.rank = 3;  // odd sizes, so that padding is needed
  config.target_modules = {Projection::kDown, Projection::kQ, Projection::kV};
  const ModelConfig model = golden_model("llama");
  const LoraLayout layout = make_lora_layout(model, config);
  BOOST_REQUIRE_EQUAL(layout.slots.size(), 6u);
  std::int64_t position = 0;
  for (const LoraSlot& slot : layout.slots) {
    BOOST_CHECK_EQUAL(slot.in_features, model.in_features(slot.projection));
    BOOST_CHECK_EQUAL(slot.out_features, model.out_features(slot.projection));
    for (const auto& [offset, count] :
         {std::pair(slot.a_offset, slot.a_count()), std::pair(slot.b_offset, slot.b_count())}) {
      BOOST_CHECK_EQUAL(offset % 16, 0);
      BOOST_CHECK_GE(offset, position);
      BOOST_CHECK_LT(offset - position, 16);
      position = offset + count;
    }
    BOOST_CHECK(layout.find(slot.layer, slot.projection) == &slot);
  }
  BOOST_CHECK_GE(layout.count, position);
  BOOST_CHECK_EQUAL(layout.count % 16, 0);
  BOOST_CHECK(layout.slots[0].projection == Projection::kQ);
  BOOST_CHECK(layout.slots[2].projection == Projection::kDown);
  BOOST_CHECK(layout.find(0, Projection::kK) == nullptr);
  BOOST_CHECK(layout.find(2, Projection::kQ) == nullptr);
  BOOST_CHECK(layout.find(-1, Projection::kQ) == nullptr);
}

BOOST_AUTO_TEST_CASE(initial_values_are_kaiming_uniform_and_zero) {
  LoraConfig config;
  config.rank = 16;
  const LoraLayout layout = make_lora_layout(golden_model("qwen2"), config);
  std::vector<float> params(static_cast<std::size_t>(layout.count), -7);
  initialise_lora(layout, 42, params.data());
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  std::set<float> seen;
  for (const LoraSlot& slot : layout.slots) {
    const double bound = 1 / std::sqrt(static_cast<double>(slot.in_features));
    for (std::int64_t i = 0; i < slot.a_count(); ++i) {
      const double value =
          static_cast<double>(params[static_cast<std::size_t>(slot.a_offset + i)]) / bound;
      BOOST_REQUIRE(std::abs(value) <= 1);
      sum += value;
      squares += value * value;
      ++count;
      seen.insert(static_cast<float>(value));
    }
    for (std::int64_t i = 0; i < slot.b_count(); ++i) {
      BOOST_REQUIRE_EQUAL(params[static_cast<std::size_t>(slot.b_offset + i)], 0);
    }
  }
  // Uniform on [-1, 1]: mean 0 and second moment 1/3, each within five standard errors.
  const auto n = static_cast<double>(count);
  BOOST_CHECK_LT(std::abs(sum / n), 5 * std::sqrt(1 / (3 * n)));
  BOOST_CHECK_LT(std::abs(squares / n - 1.0 / 3), 5 * std::sqrt(4 / (45 * n)));
  BOOST_CHECK_GT(static_cast<double>(seen.size()), 0.99 * n);  // no matrix repeats another

  std::vector<float> again(params.size());
  initialise_lora(layout, 42, again.data());
  BOOST_CHECK(again == params);
  initialise_lora(layout, 43, again.data());
  BOOST_CHECK(again != params);
  // A matrix does not depend on which other modules are adapted.
  config.target_modules = {Projection::kUp};
  const LoraLayout less = make_lora_layout(golden_model("qwen2"), config);
  std::vector<float> few(static_cast<std::size_t>(less.count));
  initialise_lora(less, 42, few.data());
  const LoraSlot* in_all = layout.find(1, Projection::kUp);
  const LoraSlot* alone = less.find(1, Projection::kUp);
  BOOST_CHECK(std::equal(few.begin() + alone->a_offset,
                         few.begin() + alone->a_offset + alone->a_count(),
                         params.begin() + in_all->a_offset));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(peft_adapter)

BOOST_AUTO_TEST_CASE(golden_adapters_survive_a_round_trip_bit_for_bit) {
  for (const std::string name : {"qwen2", "llama"}) {
    for (const char* which : {"/train-nf4/adapter-init", "/train-nf4/adapter-final"}) {
      const fs::path source = golden(name + which);
      const LoraConfig config = read_lora_config(source);
      BOOST_CHECK_EQUAL(config.rank, 8);
      BOOST_CHECK_EQUAL(config.alpha, 16);
      BOOST_CHECK_EQUAL(config.scale(), 2);
      BOOST_CHECK_EQUAL(config.dropout, 0);
      BOOST_CHECK_EQUAL(config.target_modules.size(), 7u);
      const LoraLayout layout = make_lora_layout(golden_model(name), config);
      const std::vector<float> params = read_all(source, layout);

      const TemporaryFolder folder;
      const fs::path target = folder.path() / "adapter";
      write_lora(target, config, layout, params.data(), "tiny-" + name);
      BOOST_CHECK(read_all(target, layout) == params);
      const SafetensorsFile before(source / "adapter_model.safetensors");
      const SafetensorsFile after(target / "adapter_model.safetensors");
      BOOST_CHECK_EQUAL(after.metadata().at("format"), "pt");
      BOOST_CHECK_EQUAL(after.tensors().size(), before.tensors().size());
      for (const SafetensorsTensor& tensor : before.tensors()) {
        const SafetensorsTensor* copy = after.find(tensor.name);
        BOOST_REQUIRE(copy != nullptr);
        BOOST_CHECK_EQUAL(to_string(copy->shape), to_string(tensor.shape));
        BOOST_CHECK(std::equal(copy->data.begin(), copy->data.end(), tensor.data.begin()));
      }
      // Whatever both configurations say, they say alike.
      const json theirs = json::parse(read_bytes(source / "adapter_config.json"));
      const json ours = json::parse(read_bytes(target / "adapter_config.json"));
      for (const auto& [key, value] : ours.items()) BOOST_CHECK_EQUAL(value, theirs.at(key));
    }
  }
}

BOOST_AUTO_TEST_CASE(padding_between_matrices_is_zero_after_reading) {
  const LoraConfig config = read_lora_config(golden(kAdapter));
  const LoraLayout layout = make_lora_layout(golden_model("qwen2"), config);
  const std::vector<float> params = read_all(golden(kAdapter), layout);
  std::int64_t inside = 0;
  for (const LoraSlot& slot : layout.slots) inside += slot.a_count() + slot.b_count();
  BOOST_CHECK_EQUAL(std::count(params.begin(), params.end(), -7.0f), 0);
  BOOST_CHECK_LE(inside, layout.count);
}

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
  refused({"model.layers.0.self_attn.q_proj"}, "names \"model.layers.0");
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

BOOST_AUTO_TEST_CASE(every_key_matches_a_target_and_every_target_is_filled) {
  const LoraConfig config = read_lora_config(golden(kAdapter));
  const LoraLayout layout = make_lora_layout(golden_model("qwen2"), config);
  AdapterCopy adapter;
  const auto refused = [&](std::initializer_list<std::string_view> texts) {
    std::vector<float> params(static_cast<std::size_t>(layout.count), -7);
    check_refused([&] { read_lora_weights(adapter.path(), layout, params.data()); }, texts);
    BOOST_CHECK_EQUAL(std::count(params.begin(), params.end(), -7.0f), layout.count);
  };
  adapter.rewrite([](SafetensorsEntry& e) {
    if (e.name == kKey) e.name.clear();
  });
  refused({"adapter_model.safetensors\"", kKey, "is missing"});
  adapter.rewrite([](SafetensorsEntry& e) {
    if (e.name == kKey) e.name += "2";
  });
  refused({kKey, "is missing"});

  LoraConfig less = config;
  less.target_modules = {Projection::kQ, Projection::kV};
  const LoraLayout fewer = make_lora_layout(golden_model("qwen2"), less);
  std::vector<float> params(static_cast<std::size_t>(fewer.count));
  check_refused([&] { read_lora_weights(golden(kAdapter), fewer, params.data()); },
                {"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight\"",
                 "belongs to no target module"});
  // A rank that the configuration does not say, and another base model.
  less = config;
  less.rank = 16;
  const LoraLayout rank16 = make_lora_layout(golden_model("qwen2"), less);
  params.resize(static_cast<std::size_t>(rank16.count));
  check_refused(
      [&] { read_lora_weights(golden(kAdapter), rank16, params.data()); },
      {"layers.0.self_attn.q_proj.lora_A.weight\" has shape [8, 128], expected [16, 128]"});
  const LoraLayout other = make_lora_layout(golden_model("llama"), config);
  params.resize(static_cast<std::size_t>(other.count));
  check_refused([&] { read_lora_weights(golden(kAdapter), other, params.data()); },
                {"has shape [8, 128], expected [8, 192]"});
}

BOOST_AUTO_TEST_CASE(values_and_types_of_the_weights) {
  const LoraConfig config = read_lora_config(golden(kAdapter));
  const LoraLayout layout = make_lora_layout(golden_model("qwen2"), config);
  const LoraSlot* slot = layout.find(1, Projection::kK);
  AdapterCopy adapter;
  // 1.0 as BF16 and as F16.
  for (const auto& [dtype, bits] : {std::pair("BF16", 0x3f80), std::pair("F16", 0x3c00)}) {
    const std::vector<std::uint16_t> ones(1024, static_cast<std::uint16_t>(bits));
    adapter.rewrite([&, type = dtype](SafetensorsEntry& e) {
      if (e.name != kKey) return;
      e.dtype_name = type;
      e.data = std::as_bytes(std::span(ones));
    });
    const std::vector<float> params = read_all(adapter.path(), layout);
    BOOST_CHECK(std::all_of(params.begin() + slot->a_offset,
                            params.begin() + slot->a_offset + slot->a_count(),
                            [](float value) { return value == 1; }));
  }
  const std::vector<double> doubles(1024, 1);
  adapter.rewrite([&](SafetensorsEntry& e) {
    if (e.name != kKey) return;
    e.dtype_name = "F64";
    e.data = std::as_bytes(std::span(doubles));
  });
  check_refused([&] { read_all(adapter.path(), layout); }, {kKey, "type F64"});
  std::vector<float> bad(1024, 1);
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    bad[777] = value;
    adapter.rewrite([&](SafetensorsEntry& e) {
      if (e.name == kKey) e.data = std::as_bytes(std::span(bad));
    });
    check_refused([&] { read_all(adapter.path(), layout); }, {kKey, "element 777 is not finite"});
  }
  fs::rename(adapter.weights_path(), adapter.path() / "adapter_model.bin");
  check_refused([&] { read_all(adapter.path(), layout); }, {"adapter_model.bin\" is a pickle"});
}

BOOST_AUTO_TEST_CASE(a_value_that_is_not_finite_is_never_written) {
  const LoraConfig config = read_lora_config(golden(kAdapter));
  const LoraLayout layout = make_lora_layout(golden_model("qwen2"), config);
  std::vector<float> params = read_all(golden(kAdapter), layout);
  const TemporaryFolder folder;
  const fs::path target = folder.path() / "adapter";
  write_lora(target, config, layout, params.data(), "");
  const std::string before = read_bytes(target / "adapter_model.safetensors");
  BOOST_CHECK(
      json::parse(read_bytes(target / "adapter_config.json"))["base_model_name_or_path"].is_null());
  const LoraSlot* slot = layout.find(1, Projection::kK);
  params[static_cast<std::size_t>(slot->a_offset) + 5] = std::numeric_limits<float>::quiet_NaN();
  check_throws<NotFiniteError>([&] { write_lora(target, config, layout, params.data(), ""); },
                               {"adapter\": not written", "element 5 of " + kKey});
  BOOST_CHECK(read_bytes(target / "adapter_model.safetensors") == before);
}

BOOST_AUTO_TEST_CASE(damaged_adapters_are_refused_or_read_right) {
  Random random(test_seed(20240503));
  const LoraConfig config = read_lora_config(golden(kAdapter));
  const LoraLayout layout = make_lora_layout(golden_model("qwen2"), config);
  AdapterCopy adapter;
  const std::string text = read_bytes(adapter.config_path());
  const std::string weights = read_bytes(adapter.weights_path());
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    if (i % 2 == 0) {
      write_bytes(adapter.config_path(),
                  i % 4 == 0 ? mutate_numbers(text, 1 << 20, random) : mutate_bytes(text, random));
    } else {
      write_bytes(adapter.weights_path(), mutate_bytes(weights, random));
    }
    try {
      const LoraConfig read = read_lora_config(adapter.path());
      BOOST_REQUIRE(read.rank >= 1 && read.rank <= 65536);
      BOOST_REQUIRE(std::isfinite(read.scale()) && read.dropout >= 0 && read.dropout < 1);
      const std::vector<float> params = read_all(adapter.path(), layout);
      BOOST_REQUIRE(std::all_of(params.begin(), params.end(),
                                [](float value) { return std::isfinite(value); }));
    } catch (const InputError& error) {
      BOOST_REQUIRE(std::string_view(error.what()).find("adapter_") != std::string_view::npos);
      ++refused;
    }
    write_bytes(adapter.config_path(), text);
    write_bytes(adapter.weights_path(), weights);
  }
  BOOST_TEST_MESSAGE(refused << " of 400 refused");
  BOOST_CHECK_GT(refused, 120);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
