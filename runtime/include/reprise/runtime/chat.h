// ChatML conversations as token ids, with the loss on the assistant's words alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reprise/runtime/tokenizer.h"

namespace reprise {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatFormat {
  // What the model's template puts in front when the conversation has no system message; empty:
  // nothing.
  std::string default_system;
};

// Recognises ChatML by its template's text and takes the default system message from it. Throws
// InputError, with `source` in front, for others: a guess would train on another format than the
// model knows.
ChatFormat recognise_chat_format(const std::string& jinja, const std::string& source);

// A sequence of tokens; labels are unshifted, -100 where there is no loss.
struct Sample {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

// "<|im_start|>role\ncontent<|im_end|>\n" for each message. Content is plain text: control tokens
// in it stay characters. Loss is on the assistant's content and its <|im_end|>. `dropped` (may be
// null) counts bytes without a token.
Sample render_chat(const Tokenizer& tokenizer, const ChatFormat& format,
                   const std::vector<ChatMessage>& messages, std::int64_t* dropped = nullptr);
// The same, followed by the opening of the assistant's turn; no labels.
std::vector<std::int32_t> render_prompt(const Tokenizer& tokenizer, const ChatFormat& format,
                                        const std::string& user);

}  // namespace reprise
