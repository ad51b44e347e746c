// JSON of untrusted files, read strictly: UTF-8, no comments, nothing after the value, no key twice
// in one object, and bounds on size, depth and number of values so that memory stays in proportion.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace reprise {

struct JsonLimits {
  std::int64_t max_bytes = 16 << 20;  // a config.json has a few kB, an index about 1 MB
  int max_depth = 32;
  std::int64_t max_values = 4 << 20;  // about 100 bytes of memory each
};

// Throws InputError: `where` (file or tensor, already quoted), the offset, and what is wrong.
nlohmann::json parse_strict_json(std::string_view text, const std::string& where,
                                 const JsonLimits& limits = {});
// A whole file. One byte-order mark in front is skipped.
nlohmann::json read_strict_json(const std::filesystem::path& path, const JsonLimits& limits = {});

// Typed members of an object; each throws InputError naming `where`, the key and what was found.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key,
                                  const std::string& where);
std::string json_string(const nlohmann::json& object, const char* key, const std::string& where);
bool json_bool(const nlohmann::json& object, const char* key, const std::string& where);
// An integer in [low, high]. A number written with a fraction or an exponent is not an integer.
struct IntegerRange {
  std::int64_t low = 0;
  std::int64_t high = INT64_MAX;
};
std::int64_t json_integer(const nlohmann::json& object, const char* key, IntegerRange range,
                          const std::string& where);
// A finite number, integer or not.
double json_number(const nlohmann::json& object, const char* key, const std::string& where);
// An unsigned integer below 2^63 as a size; `what` names it in the message.
std::int64_t json_size(const nlohmann::json& value, const std::string& what);

// The value as it is quoted in messages: at most 60 bytes.
std::string json_excerpt(const nlohmann::json& value);

}  // namespace reprise
