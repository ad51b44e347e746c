// GPT-2's printable alphabet for bytes: printable Latin-1 stands for itself, the other bytes are
// moved, in order, to U+0100 and up, so that every byte string is visible text.
#pragma once

#include <string>
#include <string_view>

namespace reprise {

// The bytes that `text` stands for, or false when a character is not of the alphabet (control
// tokens are stored as plain text and may hold others).
bool bytes_of_alphabet(std::string_view text, std::string& bytes);

// Offset of the first byte that is not part of well-formed UTF-8, or npos.
std::size_t first_malformed_utf8(std::string_view text);

}  // namespace reprise
