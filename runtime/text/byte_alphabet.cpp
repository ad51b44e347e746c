#include "runtime/text/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace reprise {
namespace {

constexpr std::uint32_t kFirstMoved = 0x100;

constexpr bool stands_for_itself(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// Bytes that are moved, in the order of their places from U+0100 on.
constexpr std::array<unsigned char, 68> make_moved() {
  std::array<unsigned char, 68> moved{};
  std::size_t next = 0;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if (!stands_for_itself(byte)) moved[next++] = static_cast<unsigned char>(byte);
  }
  return moved;
}
constexpr std::array<unsigned char, 68> kMoved = make_moved();

struct Decoded {
  std::uint32_t code_point = 0;
  std::size_t length = 0;  // 0: malformed
};

// Well-formed UTF-8 as Unicode defines it: shortest form, no surrogates, at most U+10FFFF.
Decoded decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return {};
  std::uint32_t code_point = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code_point = (code_point << 6) | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < kSmallest[length] || surrogate || code_point > 0x10ffff) return {};
  return {code_point, length};
}

}  // namespace

bool bytes_of_alphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (std::size_t at = 0; at < text.size();) {
    const Decoded next = decode_utf8(text, at);
    if (next.length == 0) return false;
    if (next.code_point < kFirstMoved) {
      if (!stands_for_itself(next.code_point)) return false;
      bytes += static_cast<char>(next.code_point);
    } else if (next.code_point < kFirstMoved + kMoved.size()) {
      bytes += static_cast<char>(kMoved[next.code_point - kFirstMoved]);
    } else {
      return false;
    }
    at += next.length;
  }
  return true;
}

std::size_t first_malformed_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Decoded next = decode_utf8(text, at);
    if (next.length == 0) return at;
    at += next.length;
  }
  return std::string_view::npos;
}

}  // namespace reprise
