#include "reprise/runtime/safetensors.h"

#include <cstring>

#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

BOOST_AUTO_TEST_SUITE(safetensors)

BOOST_AUTO_TEST_CASE(reads_the_golden_files) {
  const SafetensorsFile file(golden("qwen2/nf4/model.safetensors"));
  BOOST_CHECK_EQUAL(file.tensors().size(), 68u);
  BOOST_CHECK_EQUAL(file.metadata().at("format"), "pt");
  const SafetensorsTensor* embedding = file.find("model.embed_tokens.weight");
  BOOST_REQUIRE(embedding != nullptr);
  BOOST_CHECK(embedding->dtype == DType::kBF16);
  BOOST_CHECK_EQUAL(to_string(embedding->shape), "[320, 128]");
  BOOST_CHECK_EQUAL(embedding->data.size(), 81920u);
  BOOST_CHECK_EQUAL(embedding->offset, 8 + 7432 + 22400);
  BOOST_CHECK(file.find("model.embed_tokens.weigh") == nullptr);
  BOOST_CHECK(file.find("") == nullptr);
  BOOST_CHECK(file.find("zzz") == nullptr);
  // The bytes are those of the file, before and after their pages have been let go.
  const std::string all = read_bytes(file.path());
  for (int pass = 0; pass < 2; ++pass) {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      const std::string expected = all.substr(static_cast<std::size_t>(tensor.offset),
                                              static_cast<std::size_t>(tensor.data.size()));
      BOOST_CHECK(std::memcmp(expected.data(), tensor.data.data(), expected.size()) == 0);
      file.drop(tensor);
    }
  }
}

BOOST_AUTO_TEST_CASE(shards_hold_the_same_tensors_as_one_file) {
  const SafetensorsModel one(golden("qwen2/bf16"));
  const SafetensorsModel sharded(golden("qwen2/bf16-sharded"));
  BOOST_CHECK_EQUAL(one.files().size(), 1u);
  BOOST_CHECK_EQUAL(sharded.files().size(), 5u);
  std::size_t count = 0;
  for (const SafetensorsTensor& tensor : one.files()[0]->tensors()) {
    const SafetensorsTensor& other = sharded.at(tensor.name);
    BOOST_CHECK_EQUAL(to_string(tensor.shape), to_string(other.shape));
    BOOST_REQUIRE_EQUAL(tensor.data.size(), other.data.size());
    BOOST_CHECK(std::memcmp(tensor.data.data(), other.data.data(), tensor.data.size()) == 0);
    BOOST_CHECK(sharded.file_of(other).find(tensor.name) == &other);
    sharded.drop(other);
    ++count;
  }
  for (const auto& file : sharded.files()) count -= file->tensors().size();
  BOOST_CHECK_EQUAL(count, 0u);
  BOOST_CHECK(one.find("lm_head.weight") == nullptr);
  check_refused([&] { one.at("lm_head.weight"); }, {"bf16\"", "\"lm_head.weight\" is missing"});
  const SafetensorsModel by_name(golden("qwen2/bf16/model.safetensors"));
  BOOST_CHECK_EQUAL(by_name.files()[0]->tensors().size(), one.files()[0]->tensors().size());
}

BOOST_AUTO_TEST_CASE(converts_the_three_float_types) {
  const std::string f32 = little_endian(0x3fc00000'c0000000u);  // -2, 1.5
  const std::string bf16("\xc0\x3f\x00\xc0", 4);                // 1.5, -2
  const std::string f16("\x00\x3e\x01\x00", 4);                 // 1.5, 2^-24
  const std::string header = R"({"f":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
                             R"("h":{"dtype":"F16","shape":[2],"data_offsets":[12,16]},)"
                             R"("i":{"dtype":"I16","shape":[2],"data_offsets":[16,20]}} )";
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  write_bytes(path, little_endian(header.size()) + header + f32 + bf16 + f16 + "1234");
  BOOST_REQUIRE_EQUAL(std::filesystem::file_size(path), 8 + header.size() + 20);
  const SafetensorsFile file(path);
  float values[2];
  read_floats(*file.find("f"), path, values);
  BOOST_CHECK_EQUAL(values[0], -2);
  BOOST_CHECK_EQUAL(values[1], 1.5);
  read_floats(*file.find("b"), path, values);
  BOOST_CHECK_EQUAL(values[0], 1.5);
  BOOST_CHECK_EQUAL(values[1], -2);
  read_floats(*file.find("h"), path, values);
  BOOST_CHECK_EQUAL(values[0], 1.5);
  BOOST_CHECK_EQUAL(values[1], 0x1p-24f);
  BOOST_CHECK(!file.find("i")->dtype.has_value());
  check_refused([&] { read_floats(*file.find("i"), path, values); },
                {"x.safetensors\"", "\"i\" has type I16"});
}

BOOST_AUTO_TEST_CASE(writes_what_it_reads_back) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "out.safetensors";
  const std::vector<float> weights = {1, -2, 3, 4.5, 0, 6};
  const std::string codes = "abcde";
  const std::vector<SafetensorsEntry> entries = {
      {"codes", "U8", {5, 1}, std::as_bytes(std::span(codes))},
      {"z", "F32", {2, 3}, bytes_of(weights)},
      {"a \"quoted\" é", "F32", {}, bytes_of(weights).first(4)},
      {"empty", "F64", {0, 7}, {}},
  };
  write_safetensors(path, entries, {{"format", "pt"}});
  const SafetensorsFile file(path);
  BOOST_CHECK_EQUAL(file.metadata().size(), 1u);
  BOOST_CHECK_EQUAL(file.tensors().size(), 4u);
  for (const SafetensorsEntry& entry : entries) {
    const SafetensorsTensor* tensor = file.find(entry.name);
    BOOST_REQUIRE(tensor != nullptr);
    BOOST_CHECK_EQUAL(tensor->dtype_name, entry.dtype_name);
    BOOST_CHECK_EQUAL(to_string(tensor->shape), to_string(entry.shape));
    BOOST_REQUIRE_EQUAL(tensor->data.size(), entry.data.size());
    BOOST_CHECK(std::equal(tensor->data.begin(), tensor->data.end(), entry.data.begin()));
  }
  // Each tensor is aligned to its element type.
  BOOST_CHECK_EQUAL(file.find("z")->offset % 4, 0);
  BOOST_CHECK_EQUAL(file.find("empty")->offset % 8, 0);
  // The same call gives the same bytes, and so does writing tensors one at a time.
  const std::string first = read_bytes(path);
  write_safetensors(path, entries, {{"format", "pt"}},
                    [&](std::size_t index) { return entries[index].data; });
  BOOST_CHECK(read_bytes(path) == first);
}

BOOST_AUTO_TEST_CASE(writer_refuses_what_would_not_be_readable) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "out.safetensors";
  const std::vector<float> two = {1, 2};
  const auto write = [&](const std::vector<SafetensorsEntry>& entries) {
    write_safetensors(path, entries);
  };
  check_throws<Error>([&] { write({{"a", "F32", {3}, bytes_of(two)}}); }, {"8 bytes, expected 12"});
  check_throws<Error>(
      [&] {
        write({{"a", "F32", {2}, bytes_of(two)}, {"a", "U8", {0}, {}}});
      },
      {"\"a\" is reserved or used twice"});
  check_throws<Error>([&] { write({{"__metadata__", "U8", {0}, {}}}); }, {"reserved"});
  check_throws<Error>([&] { write({{"\xff", "U8", {0}, {}}}); }, {"not UTF-8"});
  check_refused([&] { write({{"a", "F31", {2}, bytes_of(two)}}); }, {"unknown dtype \"F31\""});
  check_refused([&] { write({{"a", "F32", {INT64_MAX, 2}, bytes_of(two)}}); }, {"out of range"});
  BOOST_CHECK(std::filesystem::is_empty(folder.path()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
