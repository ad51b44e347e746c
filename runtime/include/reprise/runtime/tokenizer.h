// Byte-level BPE (Sennrich et al., 2016; GPT-2's byte alphabet): text to token ids and back, in
// process, from the vocabulary that a GGUF file carries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// What GGUF calls tokenizer.ggml.*: token strings and merges in GPT-2's printable form of bytes.
struct TokenizerData {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;        // "left right", the first one has the highest priority
  std::vector<std::int32_t> token_types;  // 1 normal, 3 control, 4 user-defined; empty: all normal
  std::string pre;                        // pre-tokeniser: "gpt-2" or "smollm"
  std::int32_t bos = -1;                  // -1: none
  std::int32_t eos = -1;
  bool add_bos = false;  // a text starts with bos
};

// kParse: control and user-defined tokens in the text become their ids; for text that a program
// wrote. kPlain: they are ordinary characters; for text that a user wrote.
enum class SpecialTokens : std::uint8_t { kParse, kPlain };

class Tokenizer {
 public:
  // Throws InputError, with `source` in front, for an unknown pre-tokeniser or an inconsistent
  // vocabulary.
  Tokenizer(TokenizerData data, const std::string& source);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Ids without bos or eos. Throws InputError naming the byte offset where the text is not UTF-8.
  // A byte that the vocabulary has no token for is dropped, as the reference implementations do;
  // `dropped` (may be null) counts such bytes.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special,
                                   std::int64_t* dropped = nullptr) const;
  // The bytes of the tokens; control tokens give nothing.
  std::string decode(std::span<const std::int32_t> ids) const;

  std::int64_t vocab_size() const;
  std::optional<std::int32_t> find(std::string_view token) const;  // by its bytes: "<|im_end|>"
  std::int32_t bos() const;
  std::int32_t eos() const;
  bool add_bos() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class GgufFile;
// The tokenizer of a GGUF file. Throws InputError naming file and key.
Tokenizer read_tokenizer(const GgufFile& file);

}  // namespace reprise
