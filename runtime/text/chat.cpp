#include "reprise/runtime/chat.h"

#include <set>
#include <string_view>

#include "reprise/kernels/error.h"
#include "reprise/kernels/ops/cross_entropy.h"

namespace reprise {
namespace {

std::int32_t control_token(const Tokenizer& tokenizer, const char* token) {
  const std::optional<std::int32_t> id = tokenizer.find(token);
  if (!id) throw InputError(std::string("the vocabulary has no ") + token + ", ChatML needs it");
  return *id;
}

// Builds a sample piece by piece.
class ChatWriter {
 public:
  ChatWriter(const Tokenizer& tokenizer, std::int64_t* dropped)
      : tokenizer_(tokenizer),
        dropped_(dropped),
        start_(control_token(tokenizer, "<|im_start|>")),
        end_(control_token(tokenizer, "<|im_end|>")) {}

  void message(const ChatMessage& message) {
    const bool learned = message.role == "assistant";
    const std::string header = message.role + "\n";
    append({start_}, false);
    // Header and content are one stretch of text to the tokeniser, which may join the newline with
    // white space that follows; a token that reaches into the content counts as content.
    std::size_t reached = 0;
    for (const std::int32_t id : plain(header + message.content)) {
      reached += tokenizer_.decode({&id, 1}).size();
      append({id}, learned && reached > header.size());
    }
    append({end_}, learned);
    append(plain("\n"), false);
  }
  void open(const std::string& role) {
    append({start_}, false);
    append(plain(role + "\n"), false);
  }
  Sample take() { return std::move(sample_); }

 private:
  std::vector<std::int32_t> plain(const std::string& text) const {
    return tokenizer_.encode(text, SpecialTokens::kPlain, dropped_);
  }
  void append(const std::vector<std::int32_t>& ids, bool learned) {
    for (const std::int32_t id : ids) {
      sample_.ids.push_back(id);
      sample_.labels.push_back(learned ? id : kIgnoredLabel);
    }
  }

  const Tokenizer& tokenizer_;
  std::int64_t* dropped_;
  std::int32_t start_, end_;
  Sample sample_;
};

void write_default_system(ChatWriter& writer, const ChatFormat& format, bool has_system) {
  if (!has_system && !format.default_system.empty()) {
    writer.message({"system", format.default_system});
  }
}

// The system messages that a template spells out in one string literal. Its line breaks are either
// themselves or a backslash and an n.
std::set<std::string> system_messages(std::string_view jinja) {
  constexpr std::string_view kOpen = "<|im_start|>system", kClose = "<|im_end|>";
  constexpr std::string_view kEscaped = "\\n";
  std::set<std::string> found;
  for (std::size_t at = jinja.find(kOpen); at != jinja.npos; at = jinja.find(kOpen, at)) {
    at += kOpen.size();
    std::string_view rest = jinja.substr(at);
    if (rest.starts_with('\n')) {
      rest.remove_prefix(1);
    } else if (rest.starts_with(kEscaped)) {
      rest.remove_prefix(kEscaped.size());
    } else {
      continue;
    }
    const std::string_view message = rest.substr(0, rest.find(kClose));
    // A quote ends the literal, a brace or backslash is no plain text: the message is put together
    // by the template, from the conversation's own.
    const bool literal = message.find_first_of("'\"{}\\") == message.npos;
    if (literal && message.size() < rest.size()) found.emplace(message);
  }
  return found;
}

}  // namespace

ChatFormat recognise_chat_format(const std::string& jinja, const std::string& source) {
  const bool chatml = jinja.find("<|im_start|>") != std::string::npos &&
                      jinja.find("<|im_end|>") != std::string::npos;
  if (!chatml) {
    throw InputError(source + ": tokenizer.chat_template is not ChatML, the one known format");
  }
  const std::set<std::string> defaults = system_messages(jinja);
  if (defaults.size() > 1) {
    throw InputError(source + ": tokenizer.chat_template has " + std::to_string(defaults.size()) +
                     " default system messages, at most one is known how to use");
  }
  return {.default_system = defaults.empty() ? "" : *defaults.begin()};
}

Sample render_chat(const Tokenizer& tokenizer, const ChatFormat& format,
                   const std::vector<ChatMessage>& messages, std::int64_t* dropped) {
  ChatWriter writer(tokenizer, dropped);
  write_default_system(writer, format, !messages.empty() && messages.front().role == "system");
  for (const ChatMessage& message : messages) writer.message(message);
  return writer.take();
}

std::vector<std::int32_t> render_prompt(const Tokenizer& tokenizer, const ChatFormat& format,
                                        const std::string& user) {
  ChatWriter writer(tokenizer, nullptr);
  write_default_system(writer, format, false);
  writer.message({"user", user});
  writer.open("assistant");
  return writer.take().ids;
}

}  // namespace reprise
