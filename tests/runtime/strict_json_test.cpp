#include "runtime/io/strict_json.h"

#include <string>

#include "runtime/io/checked.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

using namespace std::string_literals;

nlohmann::json parse(std::string_view text, const JsonLimits& limits = {}) {
  return parse_strict_json(text, "\"x.json\"", limits);
}

BOOST_AUTO_TEST_SUITE(strict_json)

BOOST_AUTO_TEST_CASE(builds_what_the_text_says) {
  const nlohmann::json value =
      parse(R"( {"a":[1,-2,3.5,true,null,"\u00e9\ud83c\udf78"],"b":{"c":{}},"":[]} )");
  BOOST_CHECK_EQUAL(value.dump(), R"({"":[],"a":[1,-2,3.5,true,null,"é🍸"],"b":{"c":{}}})");
  BOOST_CHECK_EQUAL(parse("18446744073709551615").get<std::uint64_t>(), UINT64_MAX);
  BOOST_CHECK_EQUAL(parse("\"x\"").get<std::string>(), "x");
}

BOOST_AUTO_TEST_CASE(refuses_a_key_twice_at_any_depth) {
  check_refused([] { parse(R"({"a":1,"a":2})"); }, {"\"x.json\"", "duplicate key \"a\""});
  check_refused([] { parse(R"([{"b":{"c":1,"d":2,"c":1}}])"); }, {"duplicate key \"c\""});
  // The same letter, written in two ways.
  check_refused([] { parse(R"({"a":1,"\u0061":2})"); }, {"duplicate key \"a\""});
  parse(R"({"a":{"a":{"a":1}},"b":{"a":2}})");
}

BOOST_AUTO_TEST_CASE(names_the_offset_of_a_syntax_error) {
  check_refused([] { parse(R"({"a":1} x)"); }, {"byte 8"});
  check_refused([] { parse("{\"a\":1}\n{\"a\":1}"); }, {"byte 8"});
  check_refused([] { parse("{"); }, {"byte 1", "unexpected end of input"});
  check_refused([] { parse(""); }, {"byte 0"});
  check_refused([] { parse("{\"a\":\"\xff\"}"); }, {"byte 6", "UTF-8"});
  check_refused([] { parse("\"\\ud83d\""); }, {"surrogate"});
  check_refused([] { parse("{\"a\":1}\0 hidden"s); }, {"byte 7: a NUL byte"});
  check_refused([] { parse("\xEF\xBB\xBF{}"); }, {"byte 0: a byte-order mark"});
  for (const char* text : {"{\"a\":01}", "{\"a\":1,}", "[1,]", "{'a':1}", "NaN", "Infinity",
                           "1e999", "{\"a\" 1}", "// x\n{}", "/* */ 1", "tru", "+1", "\"a\nb\""}) {
    check_refused([&] { parse(text); }, {"not valid JSON at byte"});
  }
}

BOOST_AUTO_TEST_CASE(keeps_messages_short_and_on_one_line) {
  const std::string endless = "[\"" + std::string(100'000, 'x') + "\x01\"]";
  try {
    parse(endless);
    BOOST_ERROR("a control character was accepted");
  } catch (const InputError& error) {
    BOOST_CHECK_LT(std::string_view(error.what()).size(), 400u);
  }
  check_refused([] { parse("{\"a\\n\":1,\"a\\n\":1}"); }, {"duplicate key \"a\\x0a\""});
}

BOOST_AUTO_TEST_CASE(bounds_size_depth_and_values) {
  const std::string deep = std::string(32, '[') + std::string(32, ']');
  parse(deep);
  check_refused([&] { parse("[" + deep + "]"); }, {"nested deeper than 32"});
  check_refused([] { parse(std::string(1'000'000, '[')); }, {"nested deeper than 32"});
  check_refused([] { parse("[1,2,3]", {.max_bytes = 6}); }, {"7 bytes", "limit is 6"});
  parse("[1,2,3]", {.max_values = 4});
  check_refused([] { parse("[1,2,3,4]", {.max_values = 4}); }, {"more than 4 values"});
}

BOOST_AUTO_TEST_CASE(typed_members_name_the_key_and_what_was_found) {
  const nlohmann::json value =
      parse(R"({"i":7,"f":1.5,"e":1e2,"s":"t","b":true,"big":9223372036854775808,"n":null})");
  const std::string where = "W";
  BOOST_CHECK_EQUAL(json_integer(value, "i", {0, 7}, where), 7);
  BOOST_CHECK_EQUAL(json_number(value, "f", where), 1.5);
  BOOST_CHECK_EQUAL(json_number(value, "i", where), 7);
  BOOST_CHECK_EQUAL(json_string(value, "s", where), "t");
  BOOST_CHECK(json_bool(value, "b", where));
  check_refused([&] { json_integer(value, "i", {8, 9}, where); }, {"W: \"i\" is 7", "[8, 9]"});
  check_refused([&] { json_integer(value, "big", {}, where); }, {"9223372036854775808"});
  check_refused([&] { json_integer(value, "e", {}, where); }, {"\"e\" must be an integer"});
  check_refused([&] { json_integer(value, "b", {}, where); }, {"found true"});
  check_refused([&] { json_number(value, "s", where); }, {"must be a number, found \"t\""});
  check_refused([&] { json_string(value, "n", where); }, {"must be a string, found null"});
  check_refused([&] { json_bool(value, "i", where); }, {"must be true or false, found 7"});
  check_refused([&] { json_member(value, "gone", where); }, {"key \"gone\" is missing"});
  check_refused([&] { json_member(value["i"], "x", where); }, {"expected a JSON object, found 7"});
  check_refused([&] { json_size(value["f"], "size"); }, {"size must be an integer", "1.5"});
  check_refused([&] { json_size(value["big"], "size"); }, {"2^63"});
}

BOOST_AUTO_TEST_CASE(checked_sizes_never_wrap) {
  BOOST_CHECK_EQUAL(checked_mul(3037000499, 3037000499, "x"), 9223372030926249001);
  check_refused([] { checked_mul(3037000500, 3037000500, "t"); }, {"t: the size 3037000500 *"});
  check_refused([] { checked_add(INT64_MAX, 1, "t"); }, {"out of range"});
  check_refused([] { checked_add(-1, 1, "t"); }, {"out of range"});
  check_refused([] { checked_mul(-1, -1, "t"); }, {"out of range"});
  check_refused([] { checked_align(INT64_MAX - 3, 32, "t"); }, {"out of range"});
  check_refused([] { checked_align(1, 0, "t"); }, {"alignment 0"});
  check_refused([] { checked_size(UINT64_MAX - 3, "t"); }, {"18446744073709551612"});
  BOOST_CHECK_EQUAL(checked_align(33, 32, "x"), 64);
  BOOST_CHECK_EQUAL(checked_align(64, 32, "x"), 64);
  BOOST_CHECK(!try_mul(INT64_MAX, 2));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
