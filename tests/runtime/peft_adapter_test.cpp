// adapter_model.safetensors: golden adapters, and every way in which one does not fit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/runtime/golden_adapter.h"

namespace reprise::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kKey = "base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight";

std::vector<float> read_all(const fs::path& directory, const LoraLayout& layout) {
  std::vector<float> params(static_cast<std::size_t>(layout.count), -7);
  read_lora_weights(directory, layout, params.data());
  return params;
}

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

  // Named in layer 0 only, saved in layer 0 only: an adapter of a smaller model.
  adapter.set("target_modules", {"model.layers.0.self_attn.k_proj"});
  adapter.rewrite([](SafetensorsEntry& e) {
    if (e.name.find("layers.0.self_attn.k_proj") == std::string::npos) e.name.clear();
  });
  const LoraLayout keys = make_lora_layout(golden_model("qwen2"), read_lora_config(adapter.path()));
  std::vector<float> of_keys(static_cast<std::size_t>(keys.count));
  check_refused([&] { read_lora_weights(adapter.path(), keys, of_keys.data()); },
                {kKey, "is missing"});

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
