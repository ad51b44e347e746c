#include "apps/qlora_step/text_model.h"

#include <ostream>

#include "apps/qlora_step/exit_code.h"
#include "reprise/runtime/gguf.h"
#include "reprise/runtime/mapped_file.h"

namespace reprise::qlora_step {

std::unique_ptr<const TextModel> text_model(const Options& options) {
  if (options.model.extension() != ".gguf") return nullptr;
  const GgufFile file(options.model);
  auto text = std::make_unique<TextModel>(TextModel{.tokenizer = read_tokenizer(file), .chat = {}});
  constexpr const char* kTemplate = "tokenizer.chat_template";
  if (file.has(kTemplate)) {
    text->chat = recognise_chat_format(std::string(file.string(kTemplate)), options.model.string());
  }
  return text;
}

std::string read_text(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int print_tokens(const TextModel& text, const std::filesystem::path& file, std::ostream& out) {
  const char* separator = "";
  for (const std::int32_t id : text.tokenizer.encode(read_text(file), SpecialTokens::kPlain)) {
    out << separator << id;
    separator = " ";
  }
  out << "\n";
  return kExitDone;
}

}  // namespace reprise::qlora_step
