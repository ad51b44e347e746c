// config.json: what would change the arithmetic is refused by name; Llama 3's rotary scaling.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "reprise/runtime/model.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

using nlohmann::json;

json llama_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"vocab_size", 50},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 5e5},
          {"tie_word_embeddings", true}};
}

json llama3_scaling() {
  return {{"rope_type", "llama3"},
          {"factor", 32.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

ModelConfig read(const json& config) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "config.json", config.dump());
  return load_model_config(folder.path());
}

// `patch` replaces keys; null removes one.
void check_config_refused(json config, const json& patch,
                          std::initializer_list<std::string_view> texts) {
  BOOST_TEST_CONTEXT(patch.dump()) {
    config.merge_patch(patch);
    check_refused([&] { read(config); }, {"config.json"});
    check_refused([&] { read(config); }, texts);
  }
}

BOOST_AUTO_TEST_SUITE(model_config)

BOOST_AUTO_TEST_CASE(a_plain_config_is_read) {
  const ModelConfig config = read(llama_config());
  BOOST_TEST((config.architecture == Architecture::kLlama));
  BOOST_TEST(config.head_dim == 16);
  BOOST_TEST(config.rope_theta == 5e5);
  BOOST_TEST(config.tie_word_embeddings);
  BOOST_TEST(!config.qkv_bias);
  BOOST_TEST(!config.llama3_rope.has_value());
  json config_json = llama_config();
  config_json.merge_patch({{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}});
  BOOST_TEST(read(config_json).qkv_bias);
}

BOOST_AUTO_TEST_CASE(what_changes_the_arithmetic_is_refused_by_name) {
  const json plain = llama_config();
  check_config_refused(plain, {{"model_type", "mistral"}},
                       {"model_type", "mistral", "llama, qwen2"});
  check_config_refused(plain, {{"architectures", {"LlamaForSequenceClassification"}}},
                       {"architectures", "LlamaForSequenceClassification", "LlamaForCausalLM"});
  check_config_refused(plain, {{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"});
  check_config_refused(plain, {{"use_sliding_window", true}}, {"use_sliding_window", "true"});
  check_config_refused(plain, {{"attention_dropout", 0.1}}, {"attention_dropout", "0.1"});
  check_config_refused(plain, {{"mlp_bias", true}}, {"mlp_bias", "true", "false"});
  check_config_refused(plain, {{"attention_bias", true}}, {"attention_bias", "true", "false"});
  check_config_refused(plain, {{"pretraining_tp", 2}}, {"pretraining_tp", "2", "1"});
  check_config_refused(plain, {{"sliding_window", 4096}}, {"sliding_window", "4096"});
  check_config_refused(plain, {{"layer_types", {"sliding_attention"}}},
                       {"layer_types", "full_attention"});
  check_config_refused(plain, {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}},
                       {"rope_scaling", "yarn", "default, llama3"});
  check_config_refused(plain, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
                       {"rope_scaling", "linear", "llama3"});
  check_config_refused(plain, {{"rope_scaling", "linear"}}, {"rope_scaling", "an object"});
  check_config_refused(plain,
                       {{"rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}}},
                       {"rope_parameters", "partial_rotary_factor", "default"});
  check_config_refused(plain, {{"quantization_config", {{"quant_method", "gptq"}}}},
                       {"quantization_config", "quant_method", "gptq", "bitsandbytes"});
}

BOOST_AUTO_TEST_CASE(sizes_that_are_missing_mistyped_or_out_of_range_are_refused) {
  const json plain = llama_config();
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings", "rms_norm_eps"}) {
    check_config_refused(plain, {{key, nullptr}}, {key});
    check_config_refused(plain, {{key, "64"}}, {key});
    check_config_refused(plain, {{key, -1}}, {key});
    check_config_refused(plain, {{key, 0}}, {key});
    check_config_refused(plain, {{key, 1e30}}, {key});
  }
  check_config_refused(plain, {{"num_key_value_heads", 3}}, {"num_key_value_heads 3"});
  check_config_refused(plain, {{"num_attention_heads", 3}}, {"num_attention_heads 3"});
  check_config_refused(plain, {{"head_dim", 15}}, {"head_dim 15", "odd"});
  check_config_refused(plain, {{"rope_theta", 0}}, {"rope_theta"});
  check_config_refused(plain, {{"tie_word_embeddings", "yes"}}, {"tie_word_embeddings"});
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    json scaling = llama3_scaling();
    scaling.erase(key);
    check_config_refused(plain, {{"rope_scaling", scaling}}, {"rope_scaling", key});
  }
  json inverted = llama3_scaling();
  inverted["high_freq_factor"] = 0.5;
  check_config_refused(plain, {{"rope_scaling", inverted}}, {"low_freq_factor < high_freq_factor"});
  json unknown = llama3_scaling();
  unknown["beta_fast"] = 32;
  check_config_refused(plain, {{"rope_scaling", unknown}}, {"beta_fast", "llama3"});
}

// The formula as the Llama 3.1 release gives it, written out for one frequency at a time:
// wavelengths above original / low are stretched by factor, those below original / high stay, and
// in between the two are blended linearly in original / wavelength.
double llama3_frequency(double theta, double d, double head_dim, double factor) {
  const double plain = 1.0 / std::pow(theta, 2 * d / head_dim);
  const double turns = 8192 * plain / (2 * std::numbers::pi);  // within the original context
  if (turns < 1) return plain / factor;
  if (turns > 4) return plain;
  const double smooth = (turns - 1) / 3;
  return plain * ((1 - smooth) / factor + smooth);
}

BOOST_AUTO_TEST_CASE(llama3_scaling_stretches_slow_rotations_alone) {
  for (const std::int64_t head_dim : {64, 128}) {
    for (const double factor : {8.0, 32.0}) {
      json config = llama_config();
      json scaling = llama3_scaling();
      scaling["factor"] = factor;
      config.merge_patch({{"head_dim", head_dim}, {"rope_scaling", scaling}});
      const ModelConfig model = read(config);
      constexpr std::int64_t kSeq = 50;
      const std::vector<float> table = rope_table(model, kSeq);
      int stretched = 0, kept = 0, blended = 0;
      for (std::int64_t d = 0; d < head_dim / 2; ++d) {
        const double frequency =
            llama3_frequency(5e5, static_cast<double>(d), static_cast<double>(head_dim), factor);
        const double plain =
            1.0 / std::pow(5e5, 2.0 * static_cast<double>(d) / static_cast<double>(head_dim));
        ++(frequency == plain ? kept : frequency == plain / factor ? stretched : blended);
        for (std::int64_t s = 0; s < kSeq; ++s) {
          const auto i = static_cast<std::size_t>((s * head_dim / 2 + d) * 2);
          // Half an ulp of the rounding to FP32, and as much again for the angle's own rounding.
          const double angle = static_cast<double>(s) * frequency;
          BOOST_TEST(std::abs(static_cast<double>(table[i]) - std::cos(angle)) < 0x1p-23);
          BOOST_TEST(std::abs(static_cast<double>(table[i + 1]) - std::sin(angle)) < 0x1p-23);
        }
      }
      // All three parts of the formula have been met.
      BOOST_TEST(stretched > 0);
      BOOST_TEST(kept > 0);
      BOOST_TEST(blended > 0);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
