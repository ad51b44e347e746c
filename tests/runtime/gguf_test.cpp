// Metadata by type, and every readable tensor type against its published formula.
#include "reprise/runtime/gguf.h"

#include <boost/test/unit_test.hpp>
#include <cmath>

#include "tests/runtime/hostile_files.h"
#include "tests/support/gguf_writer.h"

namespace reprise::test {
namespace {

constexpr std::uint16_t kQuarter = 0x3400, kMinusThree = 0xc200;  // binary16

std::vector<float> decoded(std::uint32_t type, std::int64_t count, const std::string& data) {
  const TemporaryFolder folder;
  GgufWriter writer;
  writer.tensor("t", type, {count}, data);
  write_bytes(folder.path() / "a.gguf", writer.image());
  const GgufFile file(folder.path() / "a.gguf");
  require_readable(file, file.at("t"));
  std::vector<float> values(static_cast<std::size_t>(count));
  dequantize_gguf(file.at("t"), 0, count, values.data());
  return values;
}

BOOST_AUTO_TEST_CASE(metadata_is_read_by_type_and_refused_by_name) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.gguf";
  for (const std::uint32_t version : {2u, 3u}) {
    GgufWriter writer;
    writer.version = version;
    writer.u32("int", 7);
    writer.f32("float", 0.5F);
    writer.string("text", "abc");
    writer.key("flag", 7, std::string(1, '\1'));
    writer.key("small", 1, std::string(1, '\xff'));
    writer.key("huge", 10, bytes_of(UINT64_MAX));
    writer.key("words", 9,
               bytes_of(8u) + bytes_of(std::uint64_t{2}) + gguf_string("a") + gguf_string(""));
    writer.key("numbers", 9,
               bytes_of(5u) + bytes_of(std::uint64_t{2}) + bytes_of(-1) + bytes_of(9));
    writer.key("floats", 9, bytes_of(6u) + bytes_of(std::uint64_t{1}) + bytes_of(2.5F));
    write_bytes(path, writer.image());
    const GgufFile file(path);
    BOOST_TEST(file.version() == version);
    BOOST_TEST(file.integer("int") == 7);
    BOOST_TEST(file.integer("small") == -1);
    BOOST_TEST(file.number("float") == 0.5);
    BOOST_TEST(file.string("text") == "abc");
    BOOST_TEST(file.boolean("flag"));
    BOOST_TEST((file.strings("words") == std::vector<std::string_view>{"a", ""}));
    BOOST_TEST((file.integers("numbers") == std::vector<std::int64_t>{-1, 9}));
    BOOST_TEST((file.floats("floats") == std::vector<float>{2.5F}));
    check_refused([&] { file.integer("text"); }, {"a.gguf", "\"text\"", "string", "an integer"});
    check_refused([&] { file.floats("words"); }, {"\"words\"", "array of string", "array of f32"});
    check_refused([&] { file.integer("none"); }, {"\"none\"", "missing"});
    check_refused([&] { file.integer("huge"); }, {"\"huge\"", "out of range"});
  }
}

BOOST_AUTO_TEST_CASE(block_types_decode_by_their_formulas) {
  std::string nibbles;
  for (int i = 0; i < 16; ++i) nibbles += static_cast<char>(i | (15 - i) << 4);
  const auto q4_0 = decoded(2, 32, bytes_of(kQuarter) + nibbles);
  const auto q4_1 = decoded(3, 32, bytes_of(kQuarter) + bytes_of(kMinusThree) + nibbles);
  std::string signed_bytes;
  for (int i = 0; i < 32; ++i) signed_bytes += static_cast<char>(8 * i - 128);
  const auto q8_0 = decoded(8, 32, bytes_of(kQuarter) + signed_bytes);
  for (int i = 0; i < 32; ++i) {
    const int quant = i < 16 ? i : 31 - i;
    const auto at = static_cast<std::size_t>(i);
    BOOST_TEST(q4_0[at] == 0.25F * static_cast<float>(quant - 8));
    BOOST_TEST(q4_1[at] == 0.25F * static_cast<float>(quant) - 3);
    BOOST_TEST(q8_0[at] == 0.25F * static_cast<float>(8 * i - 128));
  }
}

BOOST_AUTO_TEST_CASE(plain_types_decode_exactly) {
  const std::vector<float> expected = {1.5F, -0.25F, 0};
  BOOST_TEST((decoded(0, 3, bytes_of(expected)) == expected));
  using Bits = std::uint16_t;
  BOOST_TEST((decoded(1, 3, bytes_of(Bits{0x3e00}) + bytes_of(Bits{0xb400}) + bytes_of(Bits{0})) ==
              expected));
  BOOST_TEST((decoded(30, 3, bytes_of(Bits{0x3fc0}) + bytes_of(Bits{0xbe80}) + bytes_of(Bits{0})) ==
              expected));
}

BOOST_AUTO_TEST_CASE(known_types_that_cannot_be_read_are_refused_by_name) {
  check_refused([] { decoded(12, 256, std::string(144, '\0')); }, {"\"t\"", "Q4_K", "Q8_0"});
  check_refused([] { decoded(14, 256, std::string(210, '\0')); }, {"\"t\"", "Q6_K", "Q4_1"});
  check_refused([] { decoded(99, 32, "x"); }, {"\"t\"", "type 99"});
}

}  // namespace
}  // namespace reprise::test
