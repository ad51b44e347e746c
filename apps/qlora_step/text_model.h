// The text side of a model: its tokenizer and its chat format, from a .gguf file.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "apps/qlora_step/options.h"
#include "reprise/runtime/chat.h"
#include "reprise/runtime/tokenizer.h"

namespace reprise::qlora_step {

struct TextModel {
  Tokenizer tokenizer;
  std::optional<ChatFormat> chat;  // absent: the file has no template
};

// Null when --model is no .gguf file.
std::unique_ptr<const TextModel> text_model(const Options& options);

// A text file whole. Throws InputError naming it.
std::string read_text(const std::filesystem::path& path);

// --tokenize: the ids of the file's text on one line. Returns the exit code.
int print_tokens(const TextModel& text, const std::filesystem::path& file, std::ostream& out);

}  // namespace reprise::qlora_step
