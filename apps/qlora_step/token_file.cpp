#include "apps/qlora_step/token_file.h"

#include <cstring>

#include "reprise/kernels/error.h"
#include "reprise/kernels/ops/cross_entropy.h"
#include "reprise/runtime/quoted.h"
#include "reprise/runtime/safetensors.h"

namespace reprise::qlora_step {
namespace {

const SafetensorsTensor& require_tokens(const SafetensorsFile& file, const char* name) {
  const SafetensorsTensor* tensor = file.find(name);
  if (tensor == nullptr)
    throw InputError(in_quotes(file.path()) + ": tensor " + name + " is missing");
  if (tensor->dtype != DType::kI64 || tensor->shape.size() != 2 || tensor->count() == 0) {
    throw InputError(in_quotes(file.path()) + ": tensor " + name + " is " + tensor->dtype_name +
                     " " + to_string(tensor->shape) + ", expected I64 [batch, tokens]");
  }
  return *tensor;
}

// Whether -100 may stand for "no target here".
enum class Masked { kRefused, kAllowed };

std::vector<std::int32_t> read_ids(const SafetensorsFile& file, const SafetensorsTensor& tensor,
                                   std::int64_t vocab_size, Masked masked_ids) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tensor.count()));
  const auto row = static_cast<std::size_t>(tensor.shape[1]);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::int64_t id = 0;
    std::memcpy(&id, tensor.data.data() + i * sizeof id, sizeof id);
    const bool masked = masked_ids == Masked::kAllowed && id == kIgnoredLabel;
    if (!masked && (id < 0 || id >= vocab_size)) {
      throw InputError(in_quotes(file.path()) + ": " + tensor.name + " holds " +
                       std::to_string(id) + " in row " + std::to_string(i / row) + ", column " +
                       std::to_string(i % row) + ", outside the vocabulary of " +
                       std::to_string(vocab_size));
    }
    ids[i] = static_cast<std::int32_t>(id);
  }
  return ids;
}

// Tokens of a row up to its last label.
std::int64_t real_tokens_of_row(const TokenBatch& batch, std::int64_t row) {
  std::int64_t real = batch.seq;
  while (real > 0 &&
         batch.labels[static_cast<std::size_t>(row * batch.seq + real - 1)] == kIgnoredLabel) {
    --real;
  }
  return real;
}

void count_real_tokens(TokenBatch& batch) {
  batch.real_tokens = 0;
  for (std::int64_t row = 0; row < batch.batch; ++row) {
    batch.real_tokens += real_tokens_of_row(batch, row);
  }
}

}  // namespace

TokenBatch read_token_file(const std::filesystem::path& path, std::int64_t vocab_size) {
  const SafetensorsFile file(path);
  const SafetensorsTensor& ids = require_tokens(file, "input_ids");
  const SafetensorsTensor& labels = require_tokens(file, "labels");
  if (ids.shape != labels.shape) {
    throw InputError(in_quotes(path) + ": input_ids is " + to_string(ids.shape) +
                     " but labels is " + to_string(labels.shape));
  }
  TokenBatch batch{.batch = ids.shape[0],
                   .seq = ids.shape[1],
                   .input_ids = read_ids(file, ids, vocab_size, Masked::kRefused),
                   .labels = read_ids(file, labels, vocab_size, Masked::kAllowed)};
  count_real_tokens(batch);
  return batch;
}

std::vector<TokenBatch> split_rows(const TokenBatch& all, std::int64_t rows) {
  std::vector<TokenBatch> parts;
  for (std::int64_t row = 0; row < all.batch; row += rows) {
    const std::int64_t begin = row * all.seq, end = (row + rows) * all.seq;
    TokenBatch part{.batch = rows,
                    .seq = all.seq,
                    .input_ids = {all.input_ids.begin() + begin, all.input_ids.begin() + end},
                    .labels = {all.labels.begin() + begin, all.labels.begin() + end}};
    count_real_tokens(part);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace reprise::qlora_step
