#include "tests/support/tiny_run.h"

namespace reprise::test {

ModelConfig tiny_config() {
  return {.architecture = Architecture::kQwen2,
          .vocab_size = 61,
          .hidden_size = 48,
          .intermediate_size = 80,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 16,
          .max_position_embeddings = 64,
          .rms_norm_eps = 1e-6,
          .rope_theta = 1e4,
          .llama3_rope = {},
          .tie_word_embeddings = true,
          .qkv_bias = true};
}

TokenBatch random_batch(Random& random, std::int64_t batch, std::int64_t seq,
                        std::int64_t vocab_size) {
  TokenBatch tokens{
      .batch = batch, .seq = seq, .input_ids = {}, .labels = {}, .real_tokens = batch * seq};
  for (std::int64_t i = 0; i < batch * seq; ++i) {
    const auto id = static_cast<std::int32_t>(random.between(0, vocab_size - 1));
    tokens.input_ids.push_back(id);
    tokens.labels.push_back(random.uniform() < 0.2 ? kIgnoredLabel : id);
  }
  return tokens;
}

TokenBatch stack(const std::vector<TokenBatch>& batches) {
  TokenBatch all{.batch = 0, .seq = batches.front().seq, .input_ids = {}, .labels = {}};
  for (const TokenBatch& batch : batches) {
    all.batch += batch.batch;
    all.real_tokens += batch.real_tokens;
    all.input_ids.insert(all.input_ids.end(), batch.input_ids.begin(), batch.input_ids.end());
    all.labels.insert(all.labels.end(), batch.labels.begin(), batch.labels.end());
  }
  return all;
}

std::vector<NamedBackend> test_backends() {
  std::vector<NamedBackend> backends;
  backends.push_back({"reference", [](LinearMode) { return make_reference_backend(); }});
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (isa > detect_isa()) continue;
    backends.push_back({std::string("cpu ") + name_of(isa), [isa](LinearMode linear) {
                          return make_cpu_backend({.isa = isa, .linear = linear, .threads = 2});
                        }});
  }
  return backends;
}

TrainerOptions tiny_options(std::int64_t batch, std::int64_t seq) {
  TrainerOptions options;
  options.shape = {.batch = batch, .seq = seq, .accumulate = 1};
  options.lora.rank = 4;
  options.lora.alpha = 8;
  options.seed = 7;
  return options;
}

}  // namespace reprise::test
