// config.json: what is read from it, every refusal by file, key, found and expected, and the rotary
// table against frequencies computed here.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "reprise/runtime/model.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

using nlohmann::json;

json llama() {
  return {{"model_type", "llama"},    {"vocab_size", 100},
          {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 500000.0}};
}

// `patch` as in RFC 7396: null takes a key away.
json patched(json config, const char* patch) {
  config.merge_patch(json::parse(patch));
  return config;
}

ModelConfig read(const std::string& text) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "config.json", text);
  return load_model_config(folder.path());
}
ModelConfig read(const json& config) { return read(config.dump()); }

struct Refusal {
  const char* patch;
  std::vector<const char*> texts;
};

void check_each(const json& base, const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    BOOST_TEST_CONTEXT(refusal.patch) {
      const auto action = [&] { read(patched(base, refusal.patch)); };
      check_refused(action, {"config.json\""});
      for (const char* text : refusal.texts) check_refused(action, {text});
    }
  }
}

json qwen2() {
  return patched(llama(), R"({"model_type":"qwen2","architectures":["Qwen2ForCausalLM"]})");
}

json with_rope(const char* rope) {
  return patched(llama(), (R"({"rope_scaling":)" + std::string(rope) + "}").c_str());
}

constexpr const char* kLlama3 =
    R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
    R"("original_max_position_embeddings":8192})";

BOOST_AUTO_TEST_SUITE(model_config)

BOOST_AUTO_TEST_CASE(what_is_known_is_read) {
  const ModelConfig config = read(llama());
  BOOST_TEST((config.architecture == Architecture::kLlama));
  BOOST_TEST(config.vocab_size == 100);
  BOOST_TEST(config.hidden_size == 64);
  BOOST_TEST(config.intermediate_size == 96);
  BOOST_TEST(config.num_hidden_layers == 2);
  BOOST_TEST(config.num_attention_heads == 4);
  BOOST_TEST(config.num_key_value_heads == 2);
  BOOST_TEST(config.head_dim == 16);
  BOOST_TEST(config.max_position_embeddings == 128);
  BOOST_TEST(config.rms_norm_eps == 1e-5);
  BOOST_TEST(config.rope_theta == 500000.0);
  BOOST_TEST(!config.llama3_rope.has_value());
  BOOST_TEST(!config.tie_word_embeddings);
  BOOST_TEST(!config.qkv_bias);
  const ModelConfig other = read(
      patched(qwen2(), R"({"head_dim":32,"tie_word_embeddings":true,"num_key_value_heads":null,)"
                       R"("rope_theta":null,"sliding_window":4096,"use_sliding_window":false,)"
                       R"("layer_types":["full_attention","full_attention"],"hidden_act":"silu",)"
                       R"("attention_dropout":0.0})"));
  BOOST_TEST((other.architecture == Architecture::kQwen2));
  BOOST_TEST(other.head_dim == 32);
  BOOST_TEST(other.num_key_value_heads == 4);
  BOOST_TEST(other.rope_theta == 10000.0);
  BOOST_TEST(other.tie_word_embeddings);
  BOOST_TEST(other.qkv_bias);
}

BOOST_AUTO_TEST_CASE(both_spellings_of_rope_are_read) {
  const ModelConfig old = read(with_rope(kLlama3));
  json fresh = llama();
  fresh.erase("rope_theta");
  fresh["rope_parameters"] = json::parse(kLlama3);
  fresh["rope_parameters"]["rope_theta"] = 1e6;
  const ModelConfig config = read(fresh);
  BOOST_TEST(old.rope_theta == 5e5);
  BOOST_TEST(config.rope_theta == 1e6);
  for (const ModelConfig& c : {old, config}) {
    BOOST_TEST_REQUIRE(c.llama3_rope.has_value());
    BOOST_TEST(c.llama3_rope->factor == 8);
    BOOST_TEST(c.llama3_rope->low_freq_factor == 1);
    BOOST_TEST(c.llama3_rope->high_freq_factor == 4);
    BOOST_TEST(c.llama3_rope->original_max_position_embeddings == 8192);
  }
  BOOST_TEST(!read(with_rope(R"({"type":"default"})")).llama3_rope.has_value());
}

BOOST_AUTO_TEST_CASE(unknown_arithmetic_is_refused) {
  check_each(llama(),
             {{R"({"model_type":"gemma2"})", {"model_type is \"gemma2\"", "llama, qwen2"}},
              {R"({"model_type":null})", {"\"model_type\" is missing"}},
              {R"({"model_type":3})", {"\"model_type\" must be a string, found 3"}},
              {R"({"architectures":["LlamaForSequenceClassification"]})",
               {"architectures is [\"LlamaForSequenceClassification\"]", "LlamaForCausalLM"}},
              {R"({"architectures":"LlamaForCausalLM"})",
               {"architectures is \"LlamaForCausalLM\"", "[\"LlamaForCausalLM\"]"}},
              {R"({"hidden_act":"gelu"})", {"hidden_act is \"gelu\"", "known: \"silu\""}},
              {R"({"attention_dropout":0.1})", {"attention_dropout is 0.1", "known: 0"}},
              {R"({"attention_dropout":"no"})", {"\"attention_dropout\" must be a number"}},
              {R"({"mlp_bias":true})", {"mlp_bias is true", "known: false"}},
              {R"({"attention_bias":true})", {"attention_bias is true", "known: false"}},
              {R"({"pretraining_tp":2})", {"pretraining_tp is 2", "known: 1"}},
              {R"({"partial_rotary_factor":0.5})", {"partial_rotary_factor is 0.5", "known: 1.0"}},
              {R"({"sliding_window":4096})", {"sliding_window is 4096", "known: null"}},
              {R"({"use_sliding_window":true})", {"use_sliding_window is true", "known: false"}},
              {R"({"layer_types":"full_attention"})", {"layer_types is \"full_attention\""}},
              {R"({"layer_types":["full_attention","sliding_attention"]})",
               {"layer_types is [\"full_attention\",\"sliding_attention\"]",
                "known: \"full_attention\""}}});
  check_each(qwen2(),
             {{R"({"use_sliding_window":true})", {"use_sliding_window is true", "known: false"}},
              {R"({"architectures":["LlamaForCausalLM"]})",
               {"architectures is [\"LlamaForCausalLM\"]", "Qwen2ForCausalLM"}}});
  BOOST_CHECK_NO_THROW(read(qwen2()));
}

BOOST_AUTO_TEST_CASE(other_rope_scaling_is_refused) {
  for (const char* type : {"linear", "dynamic", "yarn", "longrope", "su"}) {
    for (const char* key : {"rope_type", "type"}) {
      const std::string rope = "{\"" + std::string(key) + "\":\"" + type + "\",\"factor\":4.0}";
      check_refused(
          [&] { read(with_rope(rope.c_str())); },
          {"config.json\"", "rope_scaling is {", type, "known: rope_type default, llama3"});
    }
  }
  const json base = with_rope(kLlama3);
  check_each(
      base,
      {{R"({"rope_scaling":"llama3"})", {"rope_scaling is \"llama3\"", "known: an object"}},
       {R"({"rope_scaling":{"rope_type":3}})", {"rope_scaling", "\"rope_type\" must be a string"}},
       {R"({"rope_scaling":{"type":"linear"}})", {"\"type\":\"linear\"", "known: one rope_type"}},
       {R"({"rope_scaling":{"beta_fast":32}})",
        {"\"beta_fast\" is not known for rope_type llama3"}},
       {R"({"rope_scaling":{"factor":null}})", {"rope_scaling", "\"factor\" is missing"}},
       {R"({"rope_scaling":{"factor":"8"}})", {"\"factor\" must be a number, found \"8\""}},
       {R"({"rope_scaling":{"factor":0.5}})", {"\"factor\":0.5", "factor >= 1"}},
       {R"({"rope_scaling":{"low_freq_factor":null}})", {"\"low_freq_factor\" is missing"}},
       {R"({"rope_scaling":{"low_freq_factor":0}})", {"\"low_freq_factor\":0", "0 < low_freq"}},
       {R"({"rope_scaling":{"high_freq_factor":null}})", {"\"high_freq_factor\" is missing"}},
       {R"({"rope_scaling":{"high_freq_factor":1}})", {"\"high_freq_factor\":1", "< high_freq"}},
       {R"({"rope_scaling":{"original_max_position_embeddings":null}})",
        {"\"original_max_position_embeddings\" is missing"}},
       {R"({"rope_scaling":{"original_max_position_embeddings":0}})",
        {"\"original_max_position_embeddings\":0", "original_max_position_embeddings >= 1"}},
       {R"({"rope_parameters":{"rope_theta":1e4}})", {"either rope_parameters or rope_scaling"}}});
  check_each(
      llama(),
      {{R"({"rope_scaling":{"factor":2}})", {"\"factor\" is not known for rope_type default"}},
       {R"({"rope_parameters":{"rope_type":"default"}})",
        {"rope_parameters", "\"rope_theta\" is missing"}},
       {R"({"rope_parameters":[]})", {"rope_parameters is []", "known: an object"}}});
}

BOOST_AUTO_TEST_CASE(sizes_out_of_range_are_refused) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "head_dim"}) {
    const std::string name = key;
    const auto with = [&](const std::string& value) {
      return [=] { read(patched(llama(), ("{\"" + name + "\":" + value + "}").c_str())); };
    };
    BOOST_TEST_CONTEXT(name) {
      if (name != "num_key_value_heads" && name != "head_dim") {
        check_refused(with("null"), {"config.json\"", "\"" + name + "\" is missing"});
      }
      check_refused(with("\"8\""),
                    {"config.json\"", "\"" + name + "\" must be an integer, found \"8\""});
      check_refused(with("8.0"), {"\"" + name + "\" must be an integer, found 8.0"});
      check_refused(with("true"), {"\"" + name + "\" must be an integer, found true"});
      check_refused(with("-1"), {"\"" + name + "\" is -1, must be in [0, "});
      check_refused(with("18446744073709551615"), {name, "18446744073709551615"});
      check_refused(with("1099511627776"), {name, "1099511627776"});
      check_refused(with("0"), {"config.json\"", name,
                                name == "num_attention_heads" ? "0" : "is 0, expected 1 to "});
    }
  }
  check_each(llama(),
             {{R"({"num_key_value_heads":3})",
               {"num_attention_heads 4 is no multiple of num_key_value_heads 3"}},
              {R"({"num_attention_heads":5})",
               {"hidden_size 64 is no multiple of num_attention_heads 5", "no head_dim"}},
              {R"({"head_dim":15})", {"head_dim 15 is odd"}},
              {R"({"rms_norm_eps":null})", {"\"rms_norm_eps\" is missing"}},
              {R"({"rms_norm_eps":"1e-5"})", {"\"rms_norm_eps\" must be a number"}},
              {R"({"rms_norm_eps":0})", {"rms_norm_eps is 0", "between 0 and 1"}},
              {R"({"rms_norm_eps":1.5})", {"rms_norm_eps is 1.5", "between 0 and 1"}},
              {R"({"rope_theta":0.5})", {"rope_theta is 0.5", "expected 1 to 1e12"}},
              {R"({"rope_theta":1e13})", {"rope_theta is 10000000000000", "expected 1 to 1e12"}},
              {R"({"rope_theta":"1e4"})", {"\"rope_theta\" must be a number"}},
              {R"({"tie_word_embeddings":1})", {"\"tie_word_embeddings\" must be true or false"}}});
  check_refused([] { read(std::string("[]")); }, {"config.json\"", "expected a JSON object"});
  check_refused([] { read(std::string("{")); }, {"config.json\"", "not valid JSON"});
}

BOOST_AUTO_TEST_CASE(other_quantisation_is_refused) {
  const json base = patched(llama(), R"({"quantization_config":{"quant_method":"bitsandbytes",)"
                                     R"("load_in_4bit":true,"bnb_4bit_quant_type":"nf4"}})");
  BOOST_CHECK_NO_THROW(read(base));
  check_each(base,
             {{R"({"quantization_config":"nf4"})", {"quantization_config is \"nf4\"", "an object"}},
              {R"({"quantization_config":{"quant_method":"gptq"}})",
               {"quantization_config: quant_method is \"gptq\", expected \"bitsandbytes\""}},
              {R"({"quantization_config":{"quant_method":null}})", {"quant_method is missing"}},
              {R"({"quantization_config":{"load_in_4bit":false}})",
               {"load_in_4bit is false, expected true"}},
              {R"({"quantization_config":{"bnb_4bit_quant_type":"fp4"}})",
               {"bnb_4bit_quant_type is \"fp4\", expected \"nf4\""}},
              {R"({"quantization_config":{"bnb_4bit_quant_storage":"bfloat16"}})",
               {"bnb_4bit_quant_storage is \"bfloat16\", expected \"uint8\""}}});
}

// Llama 3's rule, written as a clamp: with t the share of full rotations that fit into the original
// context, scaled to 0 at low_freq_factor and 1 at high_freq_factor, the frequency goes from 1 /
// factor of itself (t <= 0) to itself (t >= 1), linearly.
double expected_frequency(double theta, std::int64_t head_dim, std::int64_t pair,
                          const Llama3Rope& rope) {
  const double plain =
      1 / std::pow(theta, 2 * static_cast<double>(pair) / static_cast<double>(head_dim));
  const double rotations = rope.original_max_position_embeddings * plain / (2 * std::numbers::pi);
  const double t = std::clamp(
      (rotations - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0,
      1.0);
  return plain * (t + (1 - t) / rope.factor);
}

BOOST_AUTO_TEST_CASE(the_llama3_table_has_the_scaled_frequencies) {
  constexpr std::int64_t kSeq = 9;
  for (const std::int64_t head_dim : {64, 128}) {
    for (const double factor : {8.0, 32.0}) {
      ModelConfig config;
      config.head_dim = head_dim;
      config.rope_theta = 500000;
      config.llama3_rope = Llama3Rope{.factor = factor};
      const std::vector<float> table = rope_table(config, kSeq);
      const std::int64_t half = head_dim / 2;
      BOOST_TEST_REQUIRE(table.size() == static_cast<std::size_t>(kSeq * half * 2));
      int kept = 0, divided = 0, blended = 0;
      for (std::int64_t d = 0; d < half; ++d) {
        const double frequency = expected_frequency(500000, head_dim, d, *config.llama3_rope);
        const double plain = expected_frequency(500000, head_dim, d, {.factor = 1});
        (frequency == plain ? kept : frequency < plain / factor * (1 + 1e-9) ? divided : blended)++;
        for (std::int64_t s = 0; s < kSeq; ++s) {
          const double angle = static_cast<double>(s) * frequency;
          const auto i = static_cast<std::size_t>((s * half + d) * 2);
          // One rounding to FP32 of a number up to 1 is 2^-25; the two ways to the angle differ by
          // some 1e-15 of it. A wrong factor shows at 1e-5 and more in the pairs that it moves.
          BOOST_TEST(std::abs(table[i] - std::cos(angle)) <= 0x1.001p-25);
          // A sine of a small angle is a small number, so it is held to its own last place.
          BOOST_TEST(std::abs(table[i + 1] - std::sin(angle)) <=
                     0x1.001p-24 * std::abs(std::sin(angle)));
        }
      }
      // All three branches are there.
      BOOST_TEST(kept > 0);
      BOOST_TEST(divided > 0);
      BOOST_TEST(blended > 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(published_frequencies_of_llama3_are_met) {
  // By hand, for theta 500000, head_dim 128, factor 8, 8192 positions: pair 0 turns by 1, the last
  // one by 500000^(-126/128) / 8.
  ModelConfig config;
  config.head_dim = 128;
  config.rope_theta = 500000;
  config.llama3_rope = Llama3Rope{};
  const std::vector<float> table = rope_table(config, 2);
  BOOST_TEST(table[128] == static_cast<float>(std::cos(1.0)));
  BOOST_TEST(table[129] == static_cast<float>(std::sin(1.0)));
  BOOST_TEST(std::abs(table[255] - 3.068925e-07) < 1e-12);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
