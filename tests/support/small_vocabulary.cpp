#include "tests/support/small_vocabulary.h"

namespace reprise::test {
namespace {

bool printable_latin1(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

std::string utf8(int code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3f))};
}

}  // namespace

std::string printable(unsigned char byte) {
  if (printable_latin1(byte)) return utf8(byte);
  int moved = 0;
  for (int b = 0; b < byte; ++b) moved += printable_latin1(b) ? 0 : 1;
  return utf8(0x100 + moved);
}

TokenizerData small_vocabulary() {
  TokenizerData data;
  for (int b = 0; b < 256; ++b) {
    if (printable_latin1(b)) data.tokens.push_back(utf8(b));
  }
  for (int b = 0; b < 256; ++b) {
    if (!printable_latin1(b)) data.tokens.push_back(printable(static_cast<unsigned char>(b)));
  }
  const std::string space = printable(' '), newline = printable('\n');
  data.merges = {"h e",    "l l",           "he ll",
                 "hell o", space + " w",    "o r",
                 "or l",   space + "w orl", space + "worl d",
                 "a b",    "b c",           "ab c",
                 "a a",    "aa aa",         "u s",
                 "us e",   "use r",         newline + " " + newline};
  for (const std::string& merge : data.merges) {
    const std::size_t gap = merge.find(' ');
    data.tokens.push_back(merge.substr(0, gap) + merge.substr(gap + 1));
  }
  data.token_types.assign(data.tokens.size(), 1);
  for (const char* control : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}) {
    data.tokens.emplace_back(control);
    data.token_types.push_back(3);
  }
  data.pre = "gpt-2";
  data.eos = static_cast<std::int32_t>(data.tokens.size()) - 1;
  return data;
}

}  // namespace reprise::test
