// Loading: GGUF of both architectures from known weights, and the golden Hugging Face folders.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>

#include "reprise/kernels/nf4.h"
#include "reprise/runtime/model.h"
#include "tests/runtime/hostile_files.h"
#include "tests/support/gguf_writer.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kHidden = 64, kHeads = 2, kHeadDim = 32, kVocab = 3;

// Every projection is [64, 64] except that k and v have one head; element (r, c) of any matrix
// tells its row, so a wrong order shows.
std::vector<float> matrix(std::int64_t rows) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < kHidden; ++c) {
      values.push_back(static_cast<float>(r + 1) * (c % 2 == 0 ? 1.0F : -0.5F));
    }
  }
  return values;
}

std::string tiny_gguf(const std::string& architecture, const std::string& extra_tensor = "") {
  GgufWriter writer;
  writer.string("general.architecture", architecture);
  const std::string prefix = architecture + ".";
  writer.u32(prefix + "block_count", 1);
  writer.u32(prefix + "context_length", 16);
  writer.u32(prefix + "embedding_length", kHidden);
  writer.u32(prefix + "feed_forward_length", 64);
  writer.u32(prefix + "attention.head_count", kHeads);
  writer.u32(prefix + "attention.head_count_kv", 1);
  writer.u32(prefix + "rope.dimension_count", kHeadDim);
  writer.f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& dims,
                       std::int64_t rows) {
    std::vector<float> values = matrix(rows);
    if (dims.size() == 1) values.resize(static_cast<std::size_t>(dims[0]));
    writer.tensor(name, 0, dims, bytes_of(values));
  };
  add("token_embd.weight", {kHidden, kVocab}, kVocab);
  add("output_norm.weight", {kHidden}, 1);
  for (const char* norm : {"attn_norm", "ffn_norm"}) {
    add(std::string("blk.0.") + norm + ".weight", {kHidden}, 1);
  }
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    const bool one_head = name == std::string("attn_k") || name == std::string("attn_v");
    const std::int64_t rows = one_head ? kHeadDim : kHidden;
    add(std::string("blk.0.") + name + ".weight", {kHidden, rows}, rows);
    const bool biased = one_head || name == std::string("attn_q");
    if (architecture == "qwen2" && biased) {
      add(std::string("blk.0.") + name + ".bias", {rows}, 1);
    }
  }
  if (!extra_tensor.empty()) add(extra_tensor, {4}, 1);
  return writer.image();
}

// With 64 columns a row is one block, so absmax is the row's own number: r + 1.
std::vector<float> absmax(const Nf4Weight& weight) {
  const Nf4View view = weight.view();
  return {view.absmax, view.absmax + weight.n};
}

Model load_tiny(const std::string& image) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "a.gguf", image);
  return load_model(folder.path() / "a.gguf", {});
}

BOOST_AUTO_TEST_CASE(llama_rows_of_q_and_k_come_back_in_order) {
  const Model model = load_tiny(tiny_gguf("llama"));
  BOOST_TEST(model.config.tie_word_embeddings);
  BOOST_TEST(model.config.vocab_size == kVocab);
  for (const Projection p : kAllProjections) {
    const auto rows = absmax(model.layers.at(0).projections[static_cast<std::size_t>(p)]);
    const bool permuted = p == Projection::kQ || p == Projection::kK;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      // Half j, pair p of a head was stored at row 2 p + j.
      const std::size_t head = r / 32, half = r % 32 / 16, pair = r % 16;
      BOOST_TEST(rows[r] == static_cast<float>((permuted ? head * 32 + 2 * pair + half : r) + 1));
    }
  }
}

BOOST_AUTO_TEST_CASE(qwen2_rows_stay_and_biases_are_read) {
  const Model model = load_tiny(tiny_gguf("qwen2"));
  const LayerWeights& layer = model.layers.at(0);
  const auto rows = absmax(layer.projections[0]);
  for (std::size_t r = 0; r < rows.size(); ++r) BOOST_TEST(rows[r] == static_cast<float>(r + 1));
  BOOST_TEST(layer.biases[1].present());
  BOOST_TEST(layer.biases[1].view().as<float>()[1] == -0.5F);
  BOOST_TEST(!layer.biases[3].present());
}

BOOST_AUTO_TEST_CASE(tensors_and_architectures_that_are_not_known_are_refused) {
  check_refused([] { load_tiny(tiny_gguf("llama", "blk.0.extra.weight")); },
                {"unexpected tensor", "blk.0.extra.weight"});
  check_refused([] { load_tiny(tiny_gguf("llama", "rope_freqs.weight")); }, {"rope_freqs.weight"});
  check_refused([] { load_tiny(tiny_gguf("gemma")); }, {"gemma", "llama, qwen2"});
}

// What the golden folders of one model hold in common: bit for bit the same projections.
void check_same_projections(const Model& a, const Model& b) {
  BOOST_TEST_REQUIRE(a.layers.size() == b.layers.size());
  for (std::size_t l = 0; l < a.layers.size(); ++l) {
    for (std::size_t p = 0; p < a.layers[l].projections.size(); ++p) {
      const Nf4Weight& x = a.layers[l].projections[p];
      const Nf4Weight& y = b.layers[l].projections[p];
      BOOST_TEST_REQUIRE(x.packed.bytes() == y.packed.bytes());
      BOOST_TEST_REQUIRE(x.absmax.bytes() == y.absmax.bytes());
      BOOST_TEST(std::memcmp(x.packed.data(), y.packed.data(),
                             static_cast<std::size_t>(x.packed.bytes())) == 0);
      BOOST_TEST(std::memcmp(x.absmax.data(), y.absmax.data(),
                             static_cast<std::size_t>(x.absmax.bytes())) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(bf16_quantised_here_equals_nf4_quantised_by_bitsandbytes) {
  for (const char* name : {"llama", "qwen2"}) {
    const std::string folder = std::string(name) + "/";
    const Model bf16 = load_model(golden(folder + "bf16"), {});
    check_same_projections(bf16, load_model(golden(folder + "nf4"), {}));
    if (std::filesystem::exists(golden(folder + "bf16-sharded"))) {
      check_same_projections(bf16, load_model(golden(folder + "bf16-sharded"), {}));
    }
    if (std::filesystem::exists(golden(folder + "nf4-dq"))) {
      BOOST_TEST(load_model(golden(folder + "nf4-dq"), {}).layers.size() == bf16.layers.size());
    }
  }
}

}  // namespace
}  // namespace reprise::test
