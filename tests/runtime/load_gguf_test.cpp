// GGUF files through load_model: every tensor type gives the NF4 weights of its values, and each
// thing that a file can have wrong is refused by file, key or tensor, found and expected.
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "reprise/kernels/float16.h"
#include "reprise/kernels/thread_pool.h"
#include "reprise/runtime/model.h"
#include "tests/runtime/gguf_model.h"
#include "tests/runtime/hostile_files.h"
#include "tests/support/gguf_writer.h"

namespace reprise::test {
namespace {

constexpr const char* kProjectionNames[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                            "ffn_gate", "ffn_up", "ffn_down"};

Model load(const GgufModel& model, const LoadOptions& options = {}) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "a.gguf", model.image());
  return load_model(folder.path() / "a.gguf", options);
}

// Row h * D + j * D / 2 + p of q and k of a llama file is stored at h * D + 2 p + j.
std::vector<float> unpermuted(const std::vector<float>& stored, std::size_t k,
                              std::size_t head_dim) {
  std::vector<float> values;
  for (std::size_t h = 0; h * head_dim * k < stored.size(); ++h) {
    for (std::size_t j = 0; j < 2; ++j) {
      for (std::size_t p = 0; p < head_dim / 2; ++p) {
        const auto row =
            stored.begin() + static_cast<std::ptrdiff_t>((h * head_dim + 2 * p + j) * k);
        values.insert(values.end(), row, row + static_cast<std::ptrdiff_t>(k));
      }
    }
  }
  return values;
}

void check_nf4(const Nf4Weight& weight, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  BOOST_TEST_REQUIRE(weight.n * weight.k == count);
  BOOST_TEST(weight.block_size == 64);
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(nf4_packed_bytes(count)));
  std::vector<float> absmax(static_cast<std::size_t>(nf4_blocks(count, 64)));
  quantize_nf4(values.data(), count, 64, weight.order, packed.data(), absmax.data());
  BOOST_TEST_REQUIRE(weight.packed.bytes() == static_cast<std::int64_t>(packed.size()));
  BOOST_TEST_REQUIRE(weight.absmax.bytes() == static_cast<std::int64_t>(absmax.size() * 4));
  BOOST_TEST(std::memcmp(weight.packed.data(), packed.data(), packed.size()) == 0);
  BOOST_TEST(std::memcmp(weight.absmax.data(), absmax.data(), absmax.size() * 4) == 0);
}

void check_projections(const Model& model, GgufModel& file, const GgufShape& shape) {
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    for (std::size_t p = 0; p < std::size(kProjectionNames); ++p) {
      const std::string name = "blk." + std::to_string(l) + "." + kProjectionNames[p] + ".weight";
      const GgufModel::Tensor& tensor = file.tensor(name);
      const bool permuted = shape.architecture == "llama" && p < 2;
      BOOST_TEST_CONTEXT(name) {
        check_nf4(model.layers[l].projections[p],
                  permuted ? unpermuted(tensor.values, static_cast<std::size_t>(tensor.dims[0]),
                                        static_cast<std::size_t>(shape.head_dim))
                           : tensor.values);
      }
    }
  }
}

void check_floats(const ConstView& view, const std::vector<float>& values) {
  BOOST_TEST_REQUIRE(view.count() == static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (view.dtype == DType::kF32) {
      BOOST_TEST_REQUIRE(view.as<float>()[i] == values[i]);
    } else {
      BOOST_TEST_REQUIRE(to_float(view.as<BFloat16>()[i]) == to_float(to_bfloat16(values[i])));
    }
  }
}

BOOST_AUTO_TEST_SUITE(load_gguf)

BOOST_AUTO_TEST_CASE(every_tensor_type_gives_the_nf4_of_its_values) {
  Random random(test_seed(301));
  for (const std::uint32_t type : {kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1}) {
    for (const char* architecture : {"llama", "qwen2"}) {
      GgufShape shape{.architecture = architecture, .type = type, .table_type = type};
      shape.own_head = shape.architecture == "qwen2";
      shape.layers = 2;
      GgufModel file = make_gguf_model(shape, random);
      for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
        BOOST_TEST_CONTEXT(architecture << " type " << type << " " << name_of(compute)) {
          const Model model = load(file, {.compute = compute});
          BOOST_TEST_REQUIRE(model.layers.size() == 2u);
          check_projections(model, file, shape);
          const bool bf16 = type == kBF16 || compute == ComputeType::kBF16;
          BOOST_TEST((model.embedding.view().dtype == (bf16 ? DType::kBF16 : DType::kF32)));
          check_floats(model.embedding.view(), file.tensor("token_embd.weight").values);
          check_floats(model.final_norm.view(), file.tensor("output_norm.weight").values);
          check_floats(model.layers[1].input_norm.view(),
                       file.tensor("blk.1.attn_norm.weight").values);
          check_floats(model.layers[0].post_attention_norm.view(),
                       file.tensor("blk.0.ffn_norm.weight").values);
          BOOST_TEST(model.config.tie_word_embeddings == !shape.own_head);
          if (!shape.own_head) continue;
          check_floats(model.lm_head.view(), file.tensor("output.weight").values);
          check_floats(model.layers[1].biases[1].view(), file.tensor("blk.1.attn_k.bias").values);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(ranges_that_begin_inside_a_row_are_read_right) {
  Random random(test_seed(302));
  // q has 768 rows of 96, 73728 weights: its second range of 65536 begins 64 columns into a row.
  const GgufShape shape{.type = kQ4_1, .hidden = 96, .heads = 24, .kv_heads = 2};
  GgufModel file = make_gguf_model(shape, random);
  ThreadPool pool(2);
  check_projections(load(file), file, shape);
  check_projections(load(file, {.pool = &pool}), file, shape);
}

// The tiny llama or qwen2 file after one change is refused with all of these texts.
using Change = std::function<void(GgufModel&)>;
void check_changed(const Change& change, std::initializer_list<std::string_view> texts,
                   const GgufShape& shape = {}) {
  Random random(303);
  GgufModel model = make_gguf_model(shape, random);
  change(model);
  check_refused([&] { load(model); }, texts);
  check_refused([&] { load(model); }, {"a.gguf\": "});
}

BOOST_AUTO_TEST_CASE(missing_and_mistyped_keys_are_refused) {
  for (const char* key :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    const std::string name = std::string("llama.") + key;
    check_changed([&](GgufModel& m) { m.erase_key(name); }, {"key \"" + name + "\" is missing"});
    check_changed([&](GgufModel& m) { m.set_string(name, "64"); },
                  {"key \"" + name + "\" is string, expected "});
  }
  for (const char* key : {"attention.head_count_kv", "attention.key_length", "rope.freq_base",
                          "attention.value_length", "rope.dimension_count", "expert_count"}) {
    const std::string name = std::string("llama.") + key;
    check_changed([&](GgufModel& m) { m.set_string(name, "64"); },
                  {"key \"" + name + "\" is string, expected "});
  }
  check_changed([](GgufModel& m) { m.erase_key("general.architecture"); },
                {"key \"general.architecture\" is missing"});
  check_changed([](GgufModel& m) { m.set_u32("general.architecture", 1); },
                {"key \"general.architecture\" is u32, expected string"});
  check_changed([](GgufModel& m) { m.set_string("general.architecture", "gemma2"); },
                {"general.architecture is \"gemma2\"", "supported: llama, qwen2"});
  check_changed([](GgufModel& m) { m.set_string("general.architecture", "qwen2"); },
                {"key \"qwen2.block_count\" is missing"});
}

BOOST_AUTO_TEST_CASE(sizes_that_make_no_model_are_refused) {
  const auto set = [](const char* key, std::uint32_t value) {
    return [=](GgufModel& m) { m.set_u32(std::string("llama.") + key, value); };
  };
  check_changed(set("attention.head_count", 0),
                {"llama.attention.head_count is 0", "expected 1 or more"});
  check_changed(set("block_count", 0), {"num_hidden_layers is 0, expected 1 to 4096"});
  check_changed(set("block_count", 1U << 20), {"num_hidden_layers is 1048576, expected 1 to 4096"});
  check_changed(set("context_length", 0), {"max_position_embeddings is 0, expected 1 to "});
  check_changed(set("embedding_length", 0), {"hidden_size is 0, expected 1 to "});
  check_changed(set("feed_forward_length", UINT32_MAX), {"intermediate_size is 4294967295"});
  check_changed(set("attention.head_count_kv", 0), {"num_key_value_heads is 0, expected 1 to "});
  check_changed(set("attention.head_count_kv", 3),
                {"num_attention_heads 4 is no multiple of num_key_value_heads 3"});
  const auto head_dim = [](std::uint32_t value) {
    return [=](GgufModel& m) {
      for (const char* key :
           {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
        m.set_u32(std::string("llama.") + key, value);
      }
    };
  };
  check_changed(head_dim(31), {"head_dim 31 is odd"});
  check_changed(head_dim(0), {"head_dim is 0, expected 1 to "});
  check_changed(
      [](GgufModel& m) {
        m.erase_key("llama.attention.key_length");
        m.set_u32("llama.attention.head_count", 6);
      },
      {"llama.attention.head_count is 6", "divisor of embedding_length 64"});
  check_changed(
      [](GgufModel& m) {
        m.key("llama.block_count") = {"llama.block_count", 10, bytes_of(UINT64_MAX)};
      },
      {"key \"llama.block_count\"", "18446744073709551615 is out of range"});
  for (const float value : {0.0F, -1.0F, 1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    check_changed([=](GgufModel& m) { m.set_f32("llama.attention.layer_norm_rms_epsilon", value); },
                  {"rms_norm_eps is ", "expected a number between 0 and 1"});
  }
  for (const float value : {0.0F, 1e13F, std::numeric_limits<float>::infinity()}) {
    check_changed([=](GgufModel& m) { m.set_f32("llama.rope.freq_base", value); },
                  {"rope_theta is ", "expected 1 to 1e12"});
  }
}

BOOST_AUTO_TEST_CASE(unknown_arithmetic_is_refused) {
  const auto set = [](const char* key, std::uint32_t value) {
    return [=](GgufModel& m) { m.set_u32(std::string("llama.") + key, value); };
  };
  check_changed(set("rope.dimension_count", 16),
                {"llama.rope.dimension_count is 16", "expected 32"});
  check_changed(set("attention.value_length", 64),
                {"llama.attention.value_length is 64", "expected 32"});
  check_changed(set("expert_count", 8), {"llama.expert_count is 8", "expected 0"});
  for (const char* type : {"linear", "yarn", "longrope"}) {
    check_changed([=](GgufModel& m) { m.set_string("llama.rope.scaling.type", type); },
                  {"llama.rope.scaling.type is \"" + std::string(type) + "\"", "expected none"});
  }
  check_changed(set("rope.scaling.type", 1), {"\"llama.rope.scaling.type\" is u32"});
  check_changed([](GgufModel& m) { m.set_f32("llama.rope.scale_linear", 4); },
                {"llama.rope.scale_linear is 4", "expected 1"});
  check_changed([](GgufModel& m) { m.set_f32("llama.rope.scaling.factor", 4); },
                {"llama.rope.scaling.factor is 4", "expected 1"});
  check_changed(
      [](GgufModel& m) {
        m.tensors.push_back({"rope_freqs.weight", kF32, {16}, std::string(64, '\1'), {}});
      },
      {"tensor rope_freqs.weight", "not supported"});
  // What changes nothing is let through.
  Random random(304);
  GgufModel model = make_gguf_model({}, random);
  model.set_u32("llama.expert_count", 0);
  model.set_string("llama.rope.scaling.type", "none");
  model.set_f32("llama.rope.scaling.factor", 4);
  model.set_f32("llama.rope.scale_linear", 1);
  BOOST_CHECK_NO_THROW(load(model));
}

BOOST_AUTO_TEST_CASE(tensors_that_are_not_the_models_are_refused) {
  Random random(305);
  for (const char* architecture : {"llama", "qwen2"}) {
    const GgufShape shape{.architecture = architecture, .own_head = true};
    for (const GgufModel::Tensor& tensor : make_gguf_model(shape, random).tensors) {
      const std::string& name = tensor.name;
      BOOST_TEST_CONTEXT(architecture << " " << name) {
        if (name != "output.weight") {
          check_changed([&](GgufModel& m) { m.erase_tensor(name); },
                        {"tensor \"" + name + "\" is missing"}, shape);
        }
        // One row fewer, with fewer bytes: only the comparison with the metadata sees it.
        const auto shrink = [&](GgufModel& m) { --m.tensor(name).dims.back(); };
        if (name == "token_embd.weight") {
          check_changed(shrink, {"tensor \"output.weight\" has dimensions [64, 7]", "[64, 6]"},
                        shape);
        } else {
          check_changed(
              shrink, {"tensor \"" + name + "\" has dimensions [", ", the metadata says ["}, shape);
        }
        check_changed([&](GgufModel& m) { m.tensor(name).type = 26; },
                      {"tensor \"" + name + "\" is I32, which is not supported; supported: F32, "},
                      shape);
        check_changed(
            [&](GgufModel& m) {
              const float bad = std::numeric_limits<float>::infinity();
              std::memcpy(m.tensor(name).data.data() + 4, &bad, sizeof bad);
            },
            {"tensor \"" + name + "\": the value at index ", "is NaN or infinite"}, shape);
      }
    }
  }
  check_changed([](GgufModel& m) { m.tensor("token_embd.weight").dims = {64 * 7}; },
                {"tensor token_embd.weight has 1 dimensions, expected 2"});
  check_changed(
      [](GgufModel& m) {
        m.tensor("token_embd.weight").dims = {64, 7, 1};
      },
      {"tensor token_embd.weight has 3 dimensions, expected 2"});
  check_changed(
      [](GgufModel& m) {
        m.tensors.push_back({"blk.0.attn_q.bias", kF32, {4}, std::string(16, '\0'), {}});
      },
      {"unexpected tensor \"blk.0.attn_q.bias\""});
  check_changed(
      [](GgufModel& m) {
        m.tensors.push_back({"blk.1.attn_norm.weight", kF32, {64}, std::string(256, '\0'), {}});
      },
      {"unexpected tensor \"blk.1.attn_norm.weight\""});
}

BOOST_AUTO_TEST_CASE(paths_that_are_no_file_are_refused) {
  const TemporaryFolder folder;
  check_refused([&] { load_model(folder.path() / "none.gguf", {}); },
                {"none.gguf\"", "cannot open"});
  std::filesystem::create_directory(folder.path() / "d.gguf");
  check_refused([&] { load_model(folder.path() / "d.gguf", {}); }, {"d.gguf\"", "is a directory"});
  write_bytes(folder.path() / "e.gguf", "");
  check_refused([&] { load_model(folder.path() / "e.gguf", {}); }, {"e.gguf\"", "is empty"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
