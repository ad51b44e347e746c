// The vocabulary of a GGUF file.
#include <limits>

#include "reprise/kernels/error.h"
#include "reprise/runtime/gguf.h"
#include "reprise/runtime/quoted.h"
#include "reprise/runtime/tokenizer.h"

namespace reprise {
namespace {

std::int32_t token_id(const GgufFile& file, const char* key) {
  if (!file.has(key)) return -1;
  const std::int64_t id = file.integer(key);
  if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(in_quotes(file.path()) + ": " + key + " is " + std::to_string(id) +
                     ", no token id");
  }
  return static_cast<std::int32_t>(id);
}

std::vector<std::string> strings_of(const GgufFile& file, const char* key) {
  const std::vector<std::string_view> views = file.strings(key);
  return {views.begin(), views.end()};
}

}  // namespace

Tokenizer read_tokenizer(const GgufFile& file) {
  const std::string source = in_quotes(file.path());
  const std::string_view model = file.string("tokenizer.ggml.model");
  if (model != "gpt2") {
    throw InputError(source + ": tokenizer.ggml.model is " + in_quotes(model) +
                     "; known: gpt2 (byte-level BPE)");
  }
  TokenizerData data;
  data.tokens = strings_of(file, "tokenizer.ggml.tokens");
  data.merges = strings_of(file, "tokenizer.ggml.merges");
  if (file.has("tokenizer.ggml.token_type")) {
    for (const std::int64_t type : file.integers("tokenizer.ggml.token_type")) {
      data.token_types.push_back(static_cast<std::int32_t>(type));
    }
  }
  data.pre = file.string("tokenizer.ggml.pre");
  data.bos = token_id(file, "tokenizer.ggml.bos_token_id");
  data.eos = token_id(file, "tokenizer.ggml.eos_token_id");
  data.add_bos =
      file.has("tokenizer.ggml.add_bos_token") && file.boolean("tokenizer.ggml.add_bos_token");
  return Tokenizer(std::move(data), source);
}

}  // namespace reprise
