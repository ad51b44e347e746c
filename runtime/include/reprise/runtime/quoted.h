// Names from outside, as they appear in messages.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace reprise {

// In double quotes. Control bytes, quotes and backslashes are escaped, so that a name cannot forge
// a line of output; other bytes, UTF-8 or not, stay. Longer than 200 bytes: the rest is cut off.
std::string in_quotes(std::string_view text);
std::string in_quotes(const std::filesystem::path& path);
inline std::string in_quotes(const std::string& text) { return in_quotes(std::string_view(text)); }
inline std::string in_quotes(const char* text) { return in_quotes(std::string_view(text)); }

}  // namespace reprise
