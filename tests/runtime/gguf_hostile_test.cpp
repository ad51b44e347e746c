// GGUF files that lie: each must be refused with a message that names the lie, without reading
// outside the file and without allocating what it claims.
#include <boost/test/unit_test.hpp>
#include <functional>

#include "reprise/runtime/gguf.h"
#include "tests/runtime/hostile_files.h"
#include "tests/support/gguf_writer.h"

namespace reprise::test {
namespace {

void check_image_refused(const std::string& image, std::string_view text) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "a.gguf", image);
  check_refused([&] { const GgufFile file(folder.path() / "a.gguf"); }, {"a.gguf", text});
}

void check_refused_after(const std::function<void(GgufWriter&)>& change, std::string_view text) {
  GgufWriter writer;
  change(writer);
  check_image_refused(writer.image(), text);
}

std::string header(std::uint32_t version, std::uint64_t tensors, std::uint64_t keys) {
  return "GGUF" + bytes_of(version) + bytes_of(tensors) + bytes_of(keys);
}

BOOST_AUTO_TEST_CASE(headers_that_lie_are_refused) {
  check_image_refused("GGML" + std::string(40, '\0'), "no GGUF file");
  check_image_refused(header(1, 0, 0), "version 1");
  check_image_refused(header(0x03000000, 0, 0), "big-endian");
  check_image_refused(header(4, 0, 0), "version 4");
  check_image_refused(header(3, UINT64_MAX, 0), "tensors do not fit");
  check_image_refused(header(3, 1ULL << 60, 0), "tensors do not fit");
  check_image_refused(header(3, 0, UINT64_MAX), "keys do not fit");
  check_image_refused("GGUF", "left");
}

BOOST_AUTO_TEST_CASE(metadata_that_lies_is_refused) {
  const std::string room(64, 'x');
  check_image_refused(header(3, 0, 1) + bytes_of(UINT64_MAX) + room, "length");
  check_image_refused(header(3, 0, 1) + bytes_of(std::uint64_t{1000}) + room, "left");
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return [=](GgufWriter& w) { w.key("a", 9, bytes_of(type) + bytes_of(count)); };
  };
  check_refused_after(array(8, 1ULL << 61), "\"a\"");
  check_refused_after(array(4, 1ULL << 62), "out of range");
  check_refused_after(array(4, UINT64_MAX), "out of range");
  check_refused_after(array(9, 1), "array of arrays");
  check_refused_after([](GgufWriter& w) { w.key("a", 13, ""); }, "unknown type 13");
  check_refused_after([](GgufWriter& w) { w.key("a", 8, bytes_of(UINT64_MAX)); }, "\"a\"");
  check_refused_after([](GgufWriter& w) { w.key("a", 7, "\2"); }, "bool");
  check_refused_after([](GgufWriter& w) { w.u32("", 1); }, "empty");
  check_refused_after([](GgufWriter& w) { w.u32("a", 1), w.u32("a", 1); }, "occurs twice");
  for (const std::uint32_t bad : {0u, 13u, 0x80000000u}) {
    check_refused_after([=](GgufWriter& w) { w.u32("general.alignment", bad); }, "power of two");
  }
  check_refused_after([](GgufWriter& w) { w.string("general.alignment", "x"); }, "expected u32");
}

BOOST_AUTO_TEST_CASE(tensors_that_lie_are_refused) {
  const auto tensor = [](std::uint32_t type, std::vector<std::int64_t> dims) {
    return [=](GgufWriter& w) { w.tensor("t", type, dims, std::string(64, '\0')); };
  };
  check_refused_after(tensor(0, {1, 1, 1, 1, 1}), "5 dimensions");
  check_refused_after(tensor(0, {}), "0 dimensions");
  check_refused_after(tensor(0, {0}), "dimension 0");
  check_refused_after(tensor(0, {-4}), "dimension -4");
  check_refused_after(tensor(24, {INT64_MAX, 2, 1, 1}), "out of range");
  check_refused_after(tensor(0, {4611686018427387903}), "out of range");
  check_refused_after(tensor(8, {1000000000000000000 / 32 * 32}), "cut off");
  check_refused_after(tensor(0, {1024, (1LL << 42) + 1}), "cut off");
  check_refused_after(tensor(2, {33}), "no multiple of the 32");
  check_refused_after(tensor(0, {17}), "cut off");
  const auto place = [](std::uint64_t offset) {
    return [=](GgufWriter& w) {
      w.tensor("a", 0, {16}, std::string(64, '\0'));
      w.tensor_at("b", 0, {8}, offset);
    };
  };
  check_refused_after(place(1), "not aligned");
  check_refused_after(place(32), "overlaps");
  check_refused_after(place(64), "cut off");
  check_refused_after(place(UINT64_MAX - 31), "out of range");
  check_refused_after([](GgufWriter& w) { w.tensor_at("", 0, {1}, 0); }, "empty");
  check_refused_after([](GgufWriter& w) { w.tensor_at(std::string(300, 'n'), 0, {1}, 0); },
                      "limit");
  check_refused_after(
      [](GgufWriter& w) {
        w.tensor("t", 0, {1}, "1234");
        w.tensor("t", 0, {1}, "1234");
      },
      "occurs twice");
}

BOOST_AUTO_TEST_CASE(mutated_files_are_read_or_refused) {
  Random random(test_seed(20240611));
  GgufWriter writer;
  writer.u32("general.alignment", 32);
  writer.string("general.architecture", "llama");
  writer.key("words", 9, bytes_of(8u) + bytes_of(std::uint64_t{1}) + gguf_string("word"));
  writer.tensor("a", 8, {32, 2}, std::string(68, '\1'));
  writer.tensor("b", 0, {8}, std::string(32, '\2'));
  const std::string image = writer.image();
  const TemporaryFolder folder;
  int refused = 0;
  constexpr int kFiles = 400;
  for (int i = 0; i < kFiles; ++i) {
    std::string changed = mutate_bytes(image, random);
    if (changed.empty()) continue;
    write_bytes(folder.path() / "a.gguf", changed);
    try {
      const GgufFile file(folder.path() / "a.gguf");
      for (const GgufTensor& tensor : file.tensors()) {
        require_readable(file, tensor);
        std::vector<float> values(static_cast<std::size_t>(tensor.count()));
        dequantize_gguf(tensor, 0, tensor.count(), values.data());
      }
      if (file.has("words")) file.strings("words");
    } catch (const InputError&) {
      ++refused;
    }
  }
  BOOST_TEST_MESSAGE(refused << " of " << kFiles << " refused");
  BOOST_TEST(refused > kFiles / 4);
}

}  // namespace
}  // namespace reprise::test
