#include "reprise/runtime/quoted.h"

namespace reprise {
namespace {

std::string quote(std::string_view text, std::size_t longest) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += "\\x";
      result += kHex[byte >> 4];
      result += kHex[byte & 15];
    } else {
      result += c;
    }
  }
  return result + (text.size() > longest ? "...\"" : "\"");
}

}  // namespace

std::string in_quotes(std::string_view text) { return quote(text, 200); }

// A path is needed whole to act on; the kernel's own limit is PATH_MAX.
std::string in_quotes(const std::filesystem::path& path) { return quote(path.native(), 4096); }

}  // namespace reprise
