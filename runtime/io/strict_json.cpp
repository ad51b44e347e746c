#include "runtime/io/strict_json.h"

#include <cmath>
#include <utility>
#include <vector>

#include "reprise/kernels/error.h"
#include "reprise/runtime/mapped_file.h"
#include "reprise/runtime/quoted.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Builds the value from the parser's events and refuses what the library would accept.
class StrictBuilder : public nlohmann::json_sax<json> {
 public:
  StrictBuilder(const std::string& where, const JsonLimits& limits)
      : where_(where), limits_(limits) {}

  bool null() override { return add(json()); }
  bool boolean(bool value) override { return add(json(value)); }
  bool number_integer(number_integer_t value) override { return add(json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add(json(value)); }
  bool string(string_t& value) override { return add(json(std::move(value))); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) {
      throw InputError(where_ + ": duplicate key " + in_quotes(name));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string reason = error.what();
    if (const std::size_t end = reason.find("] "); end != std::string::npos) {
      reason.erase(0, end + 2);  // the library's own error number
    }
    // The library repeats the token that it could not read, however long that is.
    if (reason.size() > 240)
      reason = reason.substr(0, 120) + " ... " + reason.substr(reason.size() - 110);
    // The library counts bytes from 1.
    throw InputError(where_ + ": not valid JSON at byte " +
                     std::to_string(position == 0 ? 0 : position - 1) + ": " + reason);
  }

  json take() { return std::move(root_); }

 private:
  json* insert(json value) {
    if (++values_ > limits_.max_values) {
      throw InputError(where_ + ": more than " + std::to_string(limits_.max_values) +
                       " values in the JSON");
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool add(json value) {
    insert(std::move(value));
    return true;
  }
  // The parent's other elements never move while a child is open: it is its last one.
  bool open(json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      throw InputError(where_ + ": JSON nested deeper than " + std::to_string(limits_.max_depth));
    }
    open_.push_back(insert(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  const JsonLimits& limits_;
  json root_;
  std::vector<json*> open_;
  std::string key_;
  std::int64_t values_ = 0;
};

void require_type(bool fits, const char* wanted, const json& value, const char* key,
                  const std::string& where) {
  if (fits) return;
  throw InputError(where + ": " + in_quotes(key) + " must be " + wanted + ", found " +
                   json_excerpt(value));
}

}  // namespace

json parse_strict_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (static_cast<std::int64_t>(text.size()) > limits.max_bytes) {
    throw InputError(where + ": the JSON has " + std::to_string(text.size()) +
                     " bytes, the limit is " + std::to_string(limits.max_bytes));
  }
  // The library takes a NUL for the end of the text and skips a byte-order mark.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw InputError(where + ": not valid JSON at byte " + std::to_string(nul) + ": a NUL byte");
  }
  if (text.starts_with(kByteOrderMark)) {
    throw InputError(where + ": not valid JSON at byte 0: a byte-order mark");
  }
  StrictBuilder builder(where, limits);
  json::sax_parse(text.begin(), text.end(), &builder);  // errors throw
  return builder.take();
}

json read_strict_json(const std::filesystem::path& path, const JsonLimits& limits) {
  const MappedFile file(path);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return parse_strict_json(text, in_quotes(path), limits);
}

const json& json_member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object()) {
    throw InputError(where + ": expected a JSON object, found " + json_excerpt(object));
  }
  const auto found = object.find(key);
  if (found == object.end()) throw InputError(where + ": key " + in_quotes(key) + " is missing");
  return *found;
}

std::string json_string(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  require_type(value.is_string(), "a string", value, key, where);
  return value.get<std::string>();
}

bool json_bool(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  require_type(value.is_boolean(), "true or false", value, key, where);
  return value.get<bool>();
}

std::int64_t json_integer(const json& object, const char* key, IntegerRange range,
                          const std::string& where) {
  const json& value = json_member(object, key, where);
  require_type(value.is_number_integer(), "an integer", value, key, where);
  const bool above = value.is_number_unsigned() &&
                     value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (above || value.get<std::int64_t>() < range.low || value.get<std::int64_t>() > range.high) {
    throw InputError(where + ": " + in_quotes(key) + " is " + json_excerpt(value) +
                     ", must be in [" + std::to_string(range.low) + ", " +
                     std::to_string(range.high) + "]");
  }
  return value.get<std::int64_t>();
}

double json_number(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  require_type(value.is_number() && std::isfinite(value.get<double>()), "a number", value, key,
               where);
  return value.get<double>();
}

std::int64_t json_size(const json& value, const std::string& what) {
  const bool fits = value.is_number_unsigned() &&
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
  if (!fits) {
    throw InputError(what + " must be an integer in [0, 2^63), found " + json_excerpt(value));
  }
  return value.get<std::int64_t>();
}

std::string json_excerpt(const json& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "an array";
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return in_quotes(std::string_view(text).substr(0, 60)) + (text.size() > 60 ? "..." : "");
  }
  return value.dump();
}

}  // namespace reprise
