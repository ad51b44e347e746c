// Model files with one thing wrong, by the hundred, through load_model: each loads or is refused by
// an error that names the file, and takes no more memory than a file of its size can need.
#include <boost/test/unit_test.hpp>

#include "reprise/runtime/model.h"
#include "tests/runtime/gguf_model.h"
#include "tests/runtime/hostile_files.h"
#include "tests/support/counted_allocations.h"
#include "tests/support/gguf_writer.h"

namespace reprise::test {
namespace {

// Of the model's own buffers, which are mappings and not seen by operator new.
std::int64_t buffer_bytes(const Model& model) {
  std::int64_t bytes = model.embedding.view().bytes() + model.final_norm.view().bytes();
  if (model.lm_head.present()) bytes += model.lm_head.view().bytes();
  for (const LayerWeights& layer : model.layers) {
    bytes += layer.input_norm.view().bytes() + layer.post_attention_norm.view().bytes();
    for (const Nf4Weight& weight : layer.projections) bytes += weight.bytes();
    for (const Tensor& bias : layer.biases) bytes += bias.present() ? bias.view().bytes() : 0;
  }
  return bytes;
}

class Loader {
 public:
  // Whether the file was accepted. Whatever else can happen is a failure of the test.
  bool load(const std::string& image, const std::string& what) {
    const std::filesystem::path path = folder_.path() / "m.gguf";
    write_bytes(path, image);
    const auto size = static_cast<std::int64_t>(image.size());
    const bool accepted = attempt(path, size, what);
    // A tensor's values are FP32 in ranges of 256 KiB, one range for each of a layer's seven
    // projections and each dense tensor; the rest is names and offsets, a few times their bytes.
    BOOST_CHECK_MESSAGE(asked_.bytes < (std::size_t{8} << 20) + 64 * image.size(),
                        what << ": asked for " << asked_.bytes << " bytes, file " << size);
    BOOST_CHECK_MESSAGE(
        asked_.largest <= (std::size_t{1} << 18) + 64 * image.size(),
        what << ": asked for " << asked_.largest << " bytes at once, file " << size);
    ++(accepted ? accepted_ : refused_);
    return accepted;
  }
  int accepted() const { return accepted_; }
  int refused() const { return refused_; }

 private:
  bool attempt(const std::filesystem::path& path, std::int64_t size, const std::string& what) {
    start_counting_allocations();
    try {
      const Model model = load_model(path, {});
      asked_ = stop_counting_allocations();
      // FP32 from Q4 is eight times the bytes in the file.
      BOOST_CHECK_MESSAGE(buffer_bytes(model) <= 8 * size, what << ": " << buffer_bytes(model));
      return true;
    } catch (const InputError& error) {
      asked_ = stop_counting_allocations();
      const std::string_view message = error.what();
      BOOST_CHECK_MESSAGE(message.find("m.gguf\"") != std::string_view::npos,
                          what << ": the file is not in: " << message);
      BOOST_CHECK_MESSAGE(message.size() < 1000, what << ": a message of " << message.size());
    } catch (const std::exception& error) {
      asked_ = stop_counting_allocations();
      BOOST_ERROR(what << ": not an InputError: " << error.what());
    }
    return false;
  }

  TemporaryFolder folder_;
  CountedAllocations asked_;  // by the last attempt
  int accepted_ = 0, refused_ = 0;
};

// Numbers at which sizes go wrong.
std::uint64_t hostile_number(Random& random) {
  const std::uint64_t numbers[] = {0,
                                   1,
                                   2,
                                   31,
                                   33,
                                   255,
                                   65536,
                                   (1ULL << 31) - 1,
                                   1ULL << 31,
                                   (1ULL << 32) - 1,
                                   1ULL << 32,
                                   (1ULL << 62) - 1,
                                   (1ULL << 63) - 1,
                                   1ULL << 63,
                                   UINT64_MAX - 31,
                                   UINT64_MAX};
  return numbers[random.between(0, std::ssize(numbers) - 1)];
}

template <class T>
T& any_of(std::vector<T>& list, Random& random) {
  return list[static_cast<std::size_t>(random.between(0, std::ssize(list) - 1))];
}

std::string change_key(GgufModel& model, Random& random) {
  GgufModel::Key& key = any_of(model.keys, random);
  const std::uint64_t number = hostile_number(random);
  const std::string what = "key " + key.name + ", " + std::to_string(number) + ": ";
  switch (random.between(0, 5)) {
    case 0:
      key.type = static_cast<std::uint32_t>(random.between(0, 14));
      return what + "type " + std::to_string(key.type);
    case 1:
      key = {key.name, 10, bytes_of(number)};
      return what + "u64";
    case 2:
      key = {key.name, 11, bytes_of(number)};
      return what + "i64";
    case 3:
      key = {key.name, 9,
             bytes_of(static_cast<std::uint32_t>(random.between(0, 13))) + bytes_of(number) +
                 std::string(16, '\0')};
      return what + "array";
    case 4:
      key = {key.name, 8, bytes_of(number) + "llama"};
      return what + "string";
    default:
      key.name = random.between(0, 1) == 0 ? "" : any_of(model.keys, random).name;
      return what + "renamed to " + key.name;
  }
}

std::string change_tensor(GgufModel& model, Random& random) {
  GgufModel::Tensor& tensor = any_of(model.tensors, random);
  const std::string what = "tensor " + tensor.name + ": ";
  switch (random.between(0, 5)) {
    case 0:
      tensor.type = static_cast<std::uint32_t>(random.between(0, 31));
      return what + "type " + std::to_string(tensor.type);
    case 1: {
      std::int64_t& dim = any_of(tensor.dims, random);
      dim = static_cast<std::int64_t>(hostile_number(random));
      return what + "dimension " + std::to_string(dim);
    }
    case 2:
      tensor.dims.resize(static_cast<std::size_t>(random.between(0, 6)), 1);
      return what + std::to_string(tensor.dims.size()) + " dimensions";
    case 3:
      tensor.moved = static_cast<std::int64_t>(hostile_number(random));
      return what + "not aligned or far away, by " + std::to_string(tensor.moved);
    case 4:
      tensor.moved = 32 * random.between(-8, 8);
      return what + "overlapping, by " + std::to_string(tensor.moved);
    default:
      tensor.name =
          random.between(0, 2) == 0 ? std::string(300, 'n') : any_of(model.tensors, random).name;
      return what + "renamed to " + tensor.name;
  }
}

std::string change_counts(GgufModel& model, Random& random) {
  const std::uint64_t number = hostile_number(random);
  (random.between(0, 1) == 0 ? model.more_keys : model.more_tensors) = number;
  return "counts of the header, by " + std::to_string(number);
}

GgufModel seeded_model(Random& random) {
  constexpr std::uint32_t kTypes[] = {kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1};
  const auto type = [&] { return kTypes[random.between(0, std::ssize(kTypes) - 1)]; };
  GgufShape shape{.architecture = random.between(0, 1) == 0 ? "llama" : "qwen2",
                  .type = type(),
                  .table_type = type()};
  // Small: what is tested is the description, and a test of hundreds should take a second or two.
  shape.hidden = shape.feed_forward = 32;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 16;
  shape.own_head = random.between(0, 1) == 0;
  return make_gguf_model(shape, random);
}

BOOST_AUTO_TEST_CASE(models_cut_off_anywhere_are_refused) {
  Random random(test_seed(311));
  Loader loader;
  std::vector<std::size_t> borders;
  const std::string image = seeded_model(random).image(&borders);
  BOOST_TEST(loader.load(image, "the whole file"));
  for (const std::size_t border : borders) {
    for (const std::size_t end : {border - 1, border}) {
      if (end == 0 || end >= image.size()) continue;
      BOOST_TEST(!loader.load(image.substr(0, end), "cut at " + std::to_string(end)));
    }
  }
  BOOST_TEST_MESSAGE(loader.refused() << " cut files refused");
  BOOST_TEST(loader.refused() > 200);
}

BOOST_AUTO_TEST_CASE(changed_models_load_or_are_refused) {
  Random random(test_seed(312));
  Loader loader;
  for (int i = 0; i < 400; ++i) {
    GgufModel model = seeded_model(random);
    const std::string what = i % 5 < 2   ? change_key(model, random)
                             : i % 5 < 4 ? change_tensor(model, random)
                                         : change_counts(model, random);
    loader.load(model.image(), what);
  }
  BOOST_TEST_MESSAGE(loader.refused() << " refused, " << loader.accepted() << " accepted");
  BOOST_TEST(loader.refused() > 200);
  BOOST_TEST(loader.accepted() > 5);  // a number that stays the same, an offset moved by nothing
}

BOOST_AUTO_TEST_CASE(flipped_bits_load_or_are_refused) {
  Random random(test_seed(313));
  Loader loader;
  for (int i = 0; i < 160; ++i) {
    std::vector<std::size_t> borders;
    const GgufModel model = seeded_model(random);
    std::string image = model.image(&borders);
    // Two out of three in front of the data, where a bit matters.
    const std::size_t header = borders[borders.size() - model.tensors.size()];
    const auto end = static_cast<std::int64_t>(i % 3 == 0 ? image.size() : header);
    const auto at = static_cast<std::size_t>(random.between(0, end - 1));
    image[at] ^= static_cast<char>(1 << random.between(0, 7));
    loader.load(image, "bit flipped at " + std::to_string(at));
  }
  BOOST_TEST_MESSAGE(loader.refused() << " refused, " << loader.accepted() << " accepted");
  BOOST_TEST(loader.refused() > 20);
  BOOST_TEST(loader.accepted() > 20);
}

BOOST_AUTO_TEST_CASE(the_counter_counts) {
  start_counting_allocations();
  delete new std::int64_t(1);
  const CountedAllocations asked = stop_counting_allocations();
  BOOST_TEST(asked.bytes >= sizeof(std::int64_t));
  BOOST_TEST(asked.largest >= sizeof(std::int64_t));
}

}  // namespace
}  // namespace reprise::test
