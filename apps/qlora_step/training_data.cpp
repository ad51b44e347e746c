#include "apps/qlora_step/training_data.h"

#include <algorithm>
#include <memory>

#include "apps/qlora_step/made_up_data.h"
#include "apps/qlora_step/token_file.h"
#include "reprise/runtime/dataset.h"

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

const ChatFormat* chat_of(const TextModel& text) { return text.chat ? &*text.chat : nullptr; }

// Any token does: padding carries no loss, and causal attention never looks at it.
std::int32_t padding_of(const TextModel& text) { return std::max(text.tokenizer.eos(), 0); }

TrainingData from_lines(const Options& options, const TextModel& text) {
  const DataShape shape = shape_of(options, kDefaultShape);
  const auto data = std::make_shared<const Dataset>(
      read_jsonl(options.data, text.tokenizer, chat_of(text), shape.seq));
  const SampleOrder order(static_cast<std::int64_t>(data->samples.size()), options.seed);
  const std::int32_t padding = padding_of(text);
  const std::int64_t accumulate = options.accumulate;
  return {shape, options.data.string() + ": " + to_string(data->report), [=](std::int64_t step) {
            std::int64_t position = (step - 1) * accumulate * shape.batch;
            std::vector<TokenBatch> batches;
            for (std::int64_t i = 0; i < accumulate; ++i) {
              std::vector<const Sample*> rows;
              for (std::int64_t row = 0; row < shape.batch; ++row) {
                rows.push_back(&data->samples.at(static_cast<std::size_t>(order.at(position++))));
              }
              batches.push_back(make_batch(rows, shape.seq, padding));
            }
            return batches;
          }};
}

}  // namespace

TrainingData training_data(const Options& options, const ModelConfig& model,
                           const TextModel* text) {
  if (options.data.empty()) return made_up(options, model);
  if (options.data.extension() == ".jsonl") return from_lines(options, *text);
  return from_token_file(options, model);
}

std::vector<TokenBatch> evaluation_data(const Options& options, const ModelConfig& model,
                                        const DataShape& shape, const TextModel* text) {
  if (options.eval_data.empty()) return {};
  if (options.eval_data.extension() != ".jsonl") {
    return {read_token_file(options.eval_data, model.vocab_size)};
  }
  const Dataset data = read_jsonl(options.eval_data, text->tokenizer, chat_of(*text), shape.seq);
  // One row at a time, padded to a few lengths only: each length is a graph of its own.
  constexpr std::int64_t kLengthStep = 32;
  std::vector<TokenBatch> batches;
  for (const Sample& sample : data.samples) {
    const auto length = static_cast<std::int64_t>(sample.ids.size());
    const std::int64_t rounded = (length + kLengthStep - 1) / kLengthStep * kLengthStep;
    batches.push_back(make_batch({&sample}, std::min(rounded, shape.seq), padding_of(*text)));
  }
  return batches;
}

}  // namespace reprise::qlora_step
