// Where the tokens of training and evaluation come from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/qlora_step/options.h"
#include "apps/qlora_step/text_model.h"
#include "reprise/runtime/token_batch.h"

namespace reprise::qlora_step {

struct DataShape {
  std::int64_t batch = 1;
  std::int64_t seq = 2;
};

struct TrainingData {
  DataShape shape;
  std::string description;
  // The micro-batches of a step, counted from 1; the same ones each time they are asked for.
  std::function<std::vector<TokenBatch>(std::int64_t step)> batches_of_step;
};

// --data, or made-up tokens. `text`: null when the model brings no tokenizer.
TrainingData training_data(const Options& options, const ModelConfig& model, const TextModel* text);

// --eval-data, cut into batches of that shape (the file's own for .safetensors); none: empty.
std::vector<TokenBatch> evaluation_data(const Options& options, const ModelConfig& model,
                                        const DataShape& shape, const TextModel* text);

}  // namespace reprise::qlora_step
