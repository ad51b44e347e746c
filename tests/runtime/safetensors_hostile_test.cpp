// Every way in which a safetensors header or an index can lie, each with the message that names it,
// and hundreds of damaged files that must be refused or read correctly, never crash.
#include <numeric>
#include <span>

#include "reprise/runtime/quoted.h"
#include "reprise/runtime/safetensors.h"
#include "runtime/io/safetensors_format.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

// An image in memory of exactly its size, so that ASan sees any step outside.
std::vector<std::byte> exact_bytes(const std::string& image) {
  const auto bytes = std::as_bytes(std::span(image));
  return {bytes.begin(), bytes.end()};
}

// The header only: the tensors' data goes away with the image.
SafetensorsHeader parse(const std::string& image) {
  SafetensorsHeader header = parse_safetensors_header(exact_bytes(image), "\"x.safetensors\"");
  for (SafetensorsTensor& tensor : header.tensors) tensor.data = {};
  return header;
}

struct Case {
  const char* header;
  std::size_t data_bytes;
  std::initializer_list<std::string_view> texts;
};
void check_headers_refused(std::initializer_list<Case> cases) {
  for (const Case& c : cases) {
    BOOST_TEST_CONTEXT(c.header) {
      check_refused([&] { parse(safetensors_image(c.header, c.data_bytes)); }, c.texts);
    }
  }
}

BOOST_AUTO_TEST_SUITE(safetensors_hostile)

BOOST_AUTO_TEST_CASE(legal_corner_cases_are_read) {
  const auto count = [](const char* header, std::size_t data) {
    return parse(safetensors_image(header, data)).tensors.size();
  };
  BOOST_CHECK_EQUAL(count("{}", 0), 0u);
  BOOST_CHECK_EQUAL(count("  {}\n ", 0), 0u);
  BOOST_CHECK_EQUAL(count(R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), 1u);
  BOOST_CHECK_EQUAL(count(R"({"t":{"dtype":"F32","shape":[2,0],"data_offsets":[0,0]}})", 0), 1u);
  BOOST_CHECK_EQUAL(count(R"({"t":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3), 1u);
  // Empty tensors at the beginning of another, in any order in the header.
  BOOST_CHECK_EQUAL(count(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                          R"("e":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                          R"("a":{"dtype":"F64","shape":[0],"data_offsets":[3,3]}})",
                          3),
                    3u);
  const SafetensorsHeader header =
      parse(safetensors_image(R"({"__metadata__":{"a":"b","format":"pt"}})", 0));
  BOOST_CHECK_EQUAL(header.metadata.at("a"), "b");
}

BOOST_AUTO_TEST_CASE(length_of_the_header) {
  check_refused([] { parse(std::string(7, '\0')); }, {"7 bytes are too few"});
  check_refused([] { parse(little_endian(60)); }, {"header of 60 bytes in a file of 8"});
  check_refused([] { parse(little_endian(1) + ""); }, {"header of 1 bytes in a file of 8"});
  check_refused([] { parse(std::string("\x3c\0\0\0\0\xff\xff\xff", 8) + "{}"); },
                {"header of 18446742974197923900 bytes", "limit is 100000000"});
  check_refused([] { parse(little_endian(UINT64_MAX) + "{}"); },
                {"header of 18446744073709551615 bytes"});
  check_refused([] { parse(little_endian(UINT64_MAX - 4) + "{}"); }, {"limit is 100000000"});
  check_refused([] { parse(little_endian(100'000'001) + "{}"); },
                {"header of 100000001 bytes, the limit is 100000000"});
  check_refused([] { parse(little_endian(100'000'000) + "{}"); }, {"cut off"});
  check_refused([] { parse("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"); },
                {"\"x.safetensors\"", "git-LFS pointer", "git lfs pull"});
  check_refused([] { parse("version https://git-lfs"); }, {"git-LFS pointer"});
}

BOOST_AUTO_TEST_CASE(text_of_the_header) {
  check_headers_refused({
      {"\xff", 0, {"header: not valid JSON at byte 0"}},
      {"{", 0, {"not valid JSON at byte 1"}},
      {"", 0, {"not valid JSON at byte 0"}},
      {"[]", 0, {"must be a JSON object"}},
      {"{}{}", 0, {"not valid JSON at byte 2"}},
      {R"({"\ud800":1})", 0, {"not valid JSON"}},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1,
       {"duplicate key \"t\""}},
      {R"({"t":{"dtype":"U8","shape":[1],"shape":[2],"data_offsets":[0,1]}})",
       1,
       {"duplicate key \"shape\""}},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, {"duplicate key \"a\""}},
      {R"({"__metadata__":{"a":1}})", 0, {"__metadata__", "\"a\" must be a string"}},
      {R"({"__metadata__":[]})", 0, {"\"__metadata__\" must be a JSON object"}},
      {R"({"t":[[[[[[[[[1]]]]]]]]]})", 0, {"nested deeper than 8"}},
  });
  check_refused([] { parse(little_endian(5) + std::string("{}\0{}", 5)); }, {"byte 2: a NUL byte"});
}

BOOST_AUTO_TEST_CASE(members_of_a_tensor) {
  check_headers_refused({
      {R"({"t":1})", 0, {"tensor \"t\": expected a JSON object"}},
      {R"({"t":{"shape":[1],"data_offsets":[0,1]}})",
       1,
       {"tensor \"t\": key \"dtype\" is missing"}},
      {R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"key \"shape\" is missing"}},
      {R"({"t":{"dtype":"U8","shape":[1]}})", 1, {"key \"data_offsets\" is missing"}},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, {"unknown key \"x\""}},
      {R"({"t":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, {"\"dtype\" must be a string"}},
      {R"({"t":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, {"\"shape\" must be an array"}},
      {R"({"t":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, {"a dimension", "1.0"}},
      {R"({"t":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, {"a dimension", "\"1\""}},
      {R"({"t":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, {"a dimension", "-1"}},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, {"must be two integers"}},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1, {"must be two integers"}},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1, {"data_offsets[0]", "-1"}},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1e0]}})", 1, {"data_offsets[1]"}},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 1, {"[2, 1] end before"}},
  });
}

BOOST_AUTO_TEST_CASE(types_and_sizes) {
  check_headers_refused({
      // An unknown type must not skip the checks of its offsets; it is refused at once.
      {R"({"t":{"dtype":"F33","shape":[1],"data_offsets":[0,999999]}})",
       4,
       {"tensor \"t\": unknown dtype \"F33\""}},
      {R"({"t":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, {"unknown dtype \"f32\""}},
      {R"({"t":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})",
       4,
       {"F32 [1000, 1000] has 4000000 bytes, but data_offsets [0, 4] span 4"}},
      {R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,0]}})", 0, {"F32 [] has 4 bytes"}},
      {R"({"t":{"dtype":"F32","shape":[2,18446744073709551614],"data_offsets":[0,16]}})",
       16,
       {"a dimension must be an integer in [0, 2^63), found 18446744073709551614"}},
      {R"({"t":{"dtype":"F32","shape":[2,9223372036854775807],"data_offsets":[0,16]}})",
       16,
       {"tensor \"t\": the size 2 * 9223372036854775807 is out of range"}},
      // The product of the dimensions fits, the bytes do not.
      {R"({"t":{"dtype":"F64","shape":[4611686018427387903],"data_offsets":[0,16]}})",
       16,
       {"the size 4611686018427387903 * 64 is out of range"}},
      // 2^32 * 2^32 wraps to 0.
      {R"({"t":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
       0,
       {"out of range"}},
      {R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, {"ends inside a byte"}},
      {R"({"t":{"dtype":"U8","shape":[18446744073709551617],"data_offsets":[0,1]}})",
       1,
       {"a dimension"}},
      {R"({"t":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[1,9223372036854775807]}})",
       1,
       {"out of range"}},
  });
}

BOOST_AUTO_TEST_CASE(tensors_tile_the_data) {
  check_headers_refused({
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6,
       {"tensor \"b\" begins at offset 2", "expected 4", "overlaps"}},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       4,
       {"tensor \"b\" begins at offset 0", "overlaps"}},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})",
       9,
       {"tensor \"b\" begins at offset 5", "expected 4", "hole"}},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5, {"expected 0", "hole"}},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       2,
       {"tensor \"a\" ends at offset 4", "2 bytes of data", "cut off"}},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       5,
       {"1 bytes after the last tensor"}},
      {"{}", 1, {"1 bytes after the last tensor"}},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[7,7]}})", 0, {"offset 7", "hole"}},
      // Two whose sizes together wrap around.
      {R"({"a":{"dtype":"I8","shape":[9223372036854775744],"data_offsets":[0,9223372036854775744]},)"
       R"("b":{"dtype":"I8","shape":[64],"data_offsets":[9223372036854775744,64]}})",
       64,
       {"the size 9223372036854775744 * 8 is out of range"}},
  });
}

BOOST_AUTO_TEST_CASE(what_is_no_file) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "missing \"x\"\n.safetensors";
  const auto open = [](const std::filesystem::path& p) { const SafetensorsFile file(p); };
  check_refused([&] { open(path); },
                {"cannot open", "No such file", "\\\"x\\\"\\x0a.safetensors\""});
  check_refused([&] { open(folder.path()); }, {"is a directory"});
  write_bytes(path, "");
  check_refused([&] { open(path); }, {"is empty"});
  check_refused([&] { open("/dev/null"); }, {"\"/dev/null\"", "not a regular file"});
}

BOOST_AUTO_TEST_CASE(folder_of_a_model) {
  const TemporaryFolder folder;
  const auto& dir = folder.path();
  const auto open = [&] { const SafetensorsModel model(dir); };
  check_refused(open, {"has neither model.safetensors nor model.safetensors.index.json"});
  write_bytes(dir / "pytorch_model.bin", "PK");
  check_refused(open, {"\"pytorch_model.bin\" is a pickle", "save_pretrained"});
  const std::string shard =
      safetensors_image(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  write_bytes(dir / "s1.safetensors", shard);
  write_bytes(dir / "s2.safetensors", shard);
  const auto index = [&](const std::string& text) {
    write_bytes(dir / "model.safetensors.index.json", text);
  };
  index(R"({"weight_map":{"a":"s1.safetensors"}})");
  open();
  // A name that leaves the folder, in any spelling, is refused before anything is opened.
  for (const char* name : {"../s1.safetensors", "/etc/passwd", "a/../../b", "sub/x", "", ".", "..",
                           "s1.safetensors\\u0000"}) {
    index(std::string(R"({"weight_map":{"a":")") + name + "\"}}");
    check_refused(open, {"index.json\"", "weight_map of \"a\"", "not a plain file name"});
  }
  index(R"({"weight_map":{"a":"gone.safetensors"}})");
  check_refused(open, {"shard \"gone.safetensors\" is missing"});
  index(R"({"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}})");
  check_refused(open, {"tensor \"b\" should be in \"s2.safetensors\""});
  index(R"({"weight_map":{"a":"s1.safetensors","b":"s1.safetensors"}})");
  check_refused(open, {"tensor \"b\" should be in \"s1.safetensors\""});
  index(R"({"weight_map":{"a":"s1.safetensors","a":"s2.safetensors"}})");
  check_refused(open, {"duplicate key \"a\""});
  index(R"({"weight_map":{"a":1}})");
  check_refused(open, {"weight_map of \"a\" must be a file name"});
  index(R"({"weight_map":{}})");
  check_refused(open, {"\"weight_map\" is empty"});
  index("{}");
  check_refused(open, {"key \"weight_map\" is missing"});
  // The same tensor in two shards: the index can only mean one of them.
  write_bytes(dir / "s2.safetensors",
              safetensors_image(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                2));
  index(R"({"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}})");
  check_refused(open,
                {"s2.safetensors\"", "\"a\" is here, but", "says it is in \"s1.safetensors\""});
  index(R"({"weight_map":{"b":"s2.safetensors"}})");
  check_refused(open, {"tensor \"a\" is not in"});
  write_bytes(dir / "model.safetensors", shard);
  check_refused(open, {"has both model.safetensors and model.safetensors.index.json"});
}

// What was accepted must hold together, and all of it must be readable.
void check_consistent(const SafetensorsHeader& header) {
  for (const SafetensorsTensor& tensor : header.tensors) {
    const std::int64_t bytes = safetensors_bytes(tensor.dtype_name, tensor.shape, "t");
    BOOST_REQUIRE_EQUAL(bytes, static_cast<std::int64_t>(tensor.data.size()));
    const int sum = std::accumulate(tensor.data.begin(), tensor.data.end(), 0,
                                    [](int s, std::byte b) { return s ^ std::to_integer<int>(b); });
    BOOST_REQUIRE_LT(sum, 256);
  }
}

BOOST_AUTO_TEST_CASE(damaged_files_are_refused_or_read_right) {
  Random random(test_seed(20240501));
  const std::string original =
      read_bytes(golden("qwen2/train-nf4/adapter-init/adapter_model.safetensors"));
  const std::size_t header_bytes = 3536;
  const std::string header = original.substr(8, header_bytes);
  const std::string data = original.substr(8 + header_bytes);
  const std::int64_t before = peak_memory();
  int refused = 0;
  int accepted = 0;
  for (int i = 0; i < 900; ++i) {
    std::string image;
    if (i % 3 == 0) {
      image = mutate_bytes(original, random);
    } else if (i % 3 == 1) {  // the header's length follows the text
      const std::string text =
          mutate_numbers(header, static_cast<std::int64_t>(original.size()), random);
      image = little_endian(text.size()) + text + data;
    } else {  // damage in the header alone, where it matters
      image = little_endian(header_bytes) + mutate_bytes(header, random) + data;
    }
    try {
      const std::vector<std::byte> bytes = exact_bytes(image);
      check_consistent(parse_safetensors_header(bytes, "\"x.safetensors\""));
      ++accepted;
    } catch (const InputError& error) {
      BOOST_REQUIRE(std::string_view(error.what()).starts_with("\"x.safetensors\""));
      BOOST_REQUIRE_LT(std::string_view(error.what()).size(), 1000u);
      ++refused;
    }
  }
  BOOST_TEST_MESSAGE(refused << " refused, " << accepted << " accepted");
  BOOST_CHECK_GT(refused, 450);
  BOOST_CHECK_GT(accepted, 50);  // damage of the data alone is not visible
  // The sanitizer keeps up to 256 MB of freed memory.
  BOOST_CHECK_LT(peak_memory() - before, std::int64_t{512} << 20);
}

BOOST_AUTO_TEST_CASE(damaged_indexes_are_refused_or_read_right) {
  Random random(test_seed(20240502));
  const TemporaryFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(golden("qwen2/bf16-sharded"))) {
    std::filesystem::copy(entry.path(), folder.path() / entry.path().filename());
  }
  const auto path = folder.path() / "model.safetensors.index.json";
  const std::string original = read_bytes(path);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    write_bytes(path, i % 4 == 0 ? mutate_numbers(original, 1 << 20, random)
                                 : mutate_bytes(original, random));
    try {
      const SafetensorsModel model(folder.path());
      BOOST_REQUIRE_EQUAL(model.files().size(), 5u);
      BOOST_REQUIRE_EQUAL(model.at("model.norm.weight").count(), 128);
    } catch (const InputError& error) {
      BOOST_REQUIRE(std::string_view(error.what()).starts_with("\""));
      ++refused;
    }
  }
  BOOST_TEST_MESSAGE(refused << " of 300 refused");
  BOOST_CHECK_GT(refused, 150);
}

BOOST_AUTO_TEST_CASE(a_header_of_many_values_takes_bounded_memory) {
  // The densest JSON there is: a shape of a million zeros.
  std::string header = R"({"t":{"dtype":"U8","shape":[0)";
  for (int i = 0; i < (1 << 20); ++i) header += ",0";
  header += R"(],"data_offsets":[0,0]}})";
  const std::int64_t before = peak_memory();
  const SafetensorsHeader parsed = parse(safetensors_image(header, 0));
  BOOST_CHECK_EQUAL(parsed.tensors[0].shape.size(), (1u << 20) + 1);
  BOOST_CHECK_LT(peak_memory() - before, std::int64_t{512} << 20);
  BOOST_CHECK_EQUAL(in_quotes(std::string(1000, 'x')).size(), 205u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
