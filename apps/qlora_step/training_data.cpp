#include "apps/qlora_step/training_data.h"

#include "apps/qlora_step/made_up_data.h"
#include "apps/qlora_step/token_file.h"

namespace reprise::qlora_step {
namespace {

// Short sequences of a small model: a step takes milliseconds, and a minute of them teaches it.
constexpr DataShape kEmbeddedShape = {.batch = 8, .seq = 32};
constexpr DataShape kDefaultShape = {.batch = 1, .seq = 512};

DataShape shape_of(const Options& options, const DataShape& otherwise) {
  return {.batch = options.batch.value_or(otherwise.batch),
          .seq = options.seq.value_or(otherwise.seq)};
}

TrainingData made_up(const Options& options, const ModelConfig& model) {
  const bool language = options.embedded_default();
  const DataShape shape = shape_of(options, language ? kEmbeddedShape : kDefaultShape);
  const MadeUpShape made_up{.vocab_size = model.vocab_size,
                            .batch = shape.batch,
                            .seq = shape.seq,
                            .accumulate = options.accumulate};
  const std::uint64_t seed = options.seed;
  if (language) {
    return {shape, "a made-up language of 64 words, seed " + std::to_string(seed),
            [=](std::int64_t step) { return made_up_language(made_up, seed, step); }};
  }
  return {shape, "random tokens, seed " + std::to_string(seed),
          [=](std::int64_t step) { return random_tokens(made_up, seed, step); }};
}

TrainingData from_token_file(const Options& options, const ModelConfig& model) {
  const TokenBatch all = read_token_file(options.data, model.vocab_size);
  if (all.batch % options.accumulate != 0) {
    throw UsageError("--accumulate " + std::to_string(options.accumulate) +
                     " does not divide the " + std::to_string(all.batch) + " rows of " +
                     options.data.string());
  }
  const DataShape shape{.batch = all.batch / options.accumulate, .seq = all.seq};
  if (options.batch.value_or(shape.batch) != shape.batch ||
      options.seq.value_or(shape.seq) != shape.seq) {
    throw UsageError("--batch and --seq contradict " + options.data.string() +
                     ", whose rows make " + "micro-batches of " + std::to_string(shape.batch) +
                     " x " + std::to_string(shape.seq) + "; leave them out");
  }
  const std::vector<TokenBatch> step = split_rows(all, shape.batch);
  return {shape,
          options.data.string() + ": " + std::to_string(all.batch) + " x " +
              std::to_string(all.seq) + " tokens, the same in each step",
          [step](std::int64_t) { return step; }};
}

}  // namespace

TrainingData training_data(const Options& options, const ModelConfig& model, const TextModel*) {
  if (options.data.empty()) return made_up(options, model);
  return from_token_file(options, model);
}

std::vector<TokenBatch> evaluation_data(const Options& options, const ModelConfig& model,
                                        const DataShape&, const TextModel*) {
  if (options.eval_data.empty()) return {};
  return {read_token_file(options.eval_data, model.vocab_size)};
}

}  // namespace reprise::qlora_step
