// Token ids that were made elsewhere: a safetensors file with input_ids and labels, int64 [B, T].
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "reprise/runtime/token_batch.h"

namespace reprise::qlora_step {

// All rows as one batch. Throws InputError naming file, tensor and position when something is
// missing, of another type or shape, or an id is outside the vocabulary. What follows the last
// label of a row counts as padding.
TokenBatch read_token_file(const std::filesystem::path& path, std::int64_t vocab_size);

// Cuts a batch into ones of `rows` rows each, which must divide its rows.
std::vector<TokenBatch> split_rows(const TokenBatch& all, std::int64_t rows);

}  // namespace reprise::qlora_step
