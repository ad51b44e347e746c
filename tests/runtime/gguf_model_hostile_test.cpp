// GGUF models that are damaged, through the loader: each is loaded or refused with a message that
// names the file, without a crash and without allocating what it claims.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <limits>

#include "reprise/runtime/model.h"
#include "tests/runtime/hostile_files.h"
#include "tests/runtime/tiny_gguf.h"

namespace reprise::test {
namespace {

// Loads the bytes as a model. True: it was refused, by name.
bool is_refused(const TemporaryFolder& folder, const std::string& image) {
  const std::filesystem::path path = folder.path() / "model.gguf";
  write_bytes(path, image);
  try {
    load_model(path, {});
    return false;
  } catch (const InputError& error) {
    BOOST_TEST(std::string(error.what()).find("model.gguf") != std::string::npos, error.what());
    return true;
  }
}

// Puts `value` over the number that begins at `at`.
std::string overwritten(std::string image, std::size_t at, std::uint64_t value, std::size_t bytes) {
  std::memcpy(image.data() + at, &value, std::min(bytes, image.size() - at));
  return image;
}

// Everything before the data of the tensors: where the names and numbers are.
std::size_t described_bytes(const std::string& image) {
  const std::size_t last = image.rfind(".weight");
  BOOST_REQUIRE(last != std::string::npos);
  return last + 40;  // the name's end, its dimensions, type and offset
}

BOOST_AUTO_TEST_SUITE(gguf_models)

BOOST_AUTO_TEST_CASE(a_model_cut_anywhere_is_refused) {
  const TemporaryFolder folder;
  for (const char* architecture : {"llama", "qwen2"}) {
    const std::string image = tiny_gguf(architecture);
    BOOST_TEST(!is_refused(folder, image));
    const std::size_t step = image.size() / 97;  // prime, so that cuts fall at all alignments
    for (std::size_t bytes = 0; bytes < image.size(); bytes += step) {
      if (bytes == 0) continue;
      BOOST_TEST(is_refused(folder, image.substr(0, bytes)), bytes << " bytes were loaded");
    }
  }
}

BOOST_AUTO_TEST_CASE(numbers_that_are_replaced_are_refused_or_harmless) {
  Random random(test_seed(20261201));
  const TemporaryFolder folder;
  const std::string image = tiny_gguf("llama");
  const std::size_t described = described_bytes(image);
  // Values at which sizes, counts and offsets go wrong.
  const std::uint64_t values[] = {0,          1,          0x7f,         0xffff,
                                  0x7fffffff, 0xffffffff, 1ULL << 32,   1ULL << 40,
                                  1ULL << 62, UINT64_MAX, image.size(), image.size() + 1};
  const std::int64_t before = peak_memory();
  int refused = 0;
  constexpr int kFiles = 600;
  for (int i = 0; i < kFiles; ++i) {
    const auto at =
        static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(described) - 1));
    const auto value = values[static_cast<std::size_t>(random.between(0, 11))];
    const std::size_t bytes = random.uniform() < 0.5 ? 4 : 8;
    refused += is_refused(folder, overwritten(image, at, value, bytes)) ? 1 : 0;
  }
  BOOST_TEST_MESSAGE(refused << " of " << kFiles << " refused");
  BOOST_TEST(refused > kFiles / 2);
  // No claim of a file of some 100 KB makes the loader take more than a few times that.
  BOOST_TEST(peak_memory() - before < std::int64_t{16} << 20);
}

BOOST_AUTO_TEST_CASE(flipped_bits_and_bytes_are_refused_or_harmless) {
  Random random(test_seed(20261202));
  const TemporaryFolder folder;
  const std::string image = tiny_gguf("qwen2");
  const std::size_t described = described_bytes(image);
  int refused = 0;
  constexpr int kFiles = 400;
  for (int i = 0; i < kFiles; ++i) {
    // The description alone: a flip in a weight is another weight, unless it is not finite.
    const std::string changed = mutate_bytes(image.substr(0, described), random);
    if (changed.empty()) continue;
    refused += is_refused(folder, changed + image.substr(described)) ? 1 : 0;
  }
  BOOST_TEST_MESSAGE(refused << " of " << kFiles << " refused");
  BOOST_TEST(refused > kFiles / 2);
}

BOOST_AUTO_TEST_CASE(a_weight_that_is_not_finite_is_refused_with_its_place) {
  const TemporaryFolder folder;
  std::string image = tiny_gguf("llama");
  // The last matrix of the file is ffn_down; its last value becomes NaN.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(image.data() + image.size() - sizeof nan, &nan, sizeof nan);
  write_bytes(folder.path() / "model.gguf", image);
  check_refused([&] { load_model(folder.path() / "model.gguf", {}); }, {"ffn_down", "4095"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
