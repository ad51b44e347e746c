// Texts of tests/data/tokenizer with their token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reprise/runtime/tokenizer.h"

namespace reprise::test {

struct TokenVector {
  std::string text;
  std::vector<std::int32_t> ids;
};

// `model`: "gpt2" or "smollm2".
std::vector<TokenVector> token_vectors(const std::string& file, const char* model);

// The tokenizer must give each text's ids and the text back.
void check_token_vectors(const Tokenizer& tokenizer, const std::vector<TokenVector>& vectors);

}  // namespace reprise::test
