// NF4 as bitsandbytes stores it: bit-exact against its own output, and against a slow second
// implementation written from the rule in reprise/kernels/nf4.h.
#include "reprise/kernels/nf4.h"

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reprise/runtime/safetensors.h"
#include "tests/support/random.h"

namespace reprise::test {
namespace {

constexpr NibbleOrder kOrders[] = {NibbleOrder::kHighFirst, NibbleOrder::kLowFirst};
const std::vector<std::string> kCases = {"plain", "bf16", "straddle", "partial", "odd",
                                         "zeros", "many", "outlier",  "ties"};

struct Quantized {
  std::vector<std::uint8_t> packed;
  std::vector<float> absmax;
};

Quantized quantized(const std::vector<float>& values, std::int64_t block_size, NibbleOrder order) {
  const auto count = static_cast<std::int64_t>(values.size());
  Quantized result;
  result.packed.resize(static_cast<std::size_t>(nf4_packed_bytes(count)), 0xee);
  result.absmax.resize(static_cast<std::size_t>(nf4_blocks(count, block_size)), -1);
  quantize_nf4(values.data(), count, block_size, order, result.packed.data(), result.absmax.data());
  return result;
}

// The code of one scaled value: midpoints below it, counted one by one; a tie is not below.
std::uint8_t slow_code(float scaled) {
  std::uint8_t code = 0;
  while (code < 15 && scaled > (kNf4Codebook[code] + kNf4Codebook[code + 1u]) / 2.0f) ++code;
  return code;
}

// Element by element, from the text of the rule.
Quantized slow_quantized(const std::vector<float>& values, std::size_t block, NibbleOrder order) {
  Quantized result;
  std::vector<std::uint8_t> codes;
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t end = std::min(values.size(), begin + block);
    float largest = 0;
    for (std::size_t i = begin; i < end; ++i) largest = std::fmax(largest, std::fabs(values[i]));
    const bool is_short = end - begin < block;
    const bool is_zero = largest < 1e-38f;
    if (is_short && is_zero) largest = 1e-38f;
    const float reciprocal = is_zero ? 0.0f : 1.0f / largest;
    for (std::size_t i = begin; i < end; ++i) {
      const float scaled = is_short ? values[i] / largest : values[i] * reciprocal;
      codes.push_back(slow_code(std::fmin(1.0f, std::fmax(-1.0f, scaled))));
    }
    result.absmax.push_back(largest);
  }
  if (codes.size() % 2 != 0) codes.push_back(7);
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    const bool high_first = order == NibbleOrder::kHighFirst;
    const int high = codes[high_first ? i : i + 1], low = codes[high_first ? i + 1 : i];
    result.packed.push_back(static_cast<std::uint8_t>(16 * high + low));
  }
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check_same(const Quantized& got, const Quantized& want, const std::string& what) {
  BOOST_TEST(same_bits(got.absmax, want.absmax), what << ": absmax differs");
  BOOST_REQUIRE_EQUAL(got.packed.size(), want.packed.size());
  for (std::size_t i = 0; i < got.packed.size(); ++i) {
    if (got.packed[i] == want.packed[i]) continue;
    BOOST_ERROR(what << ": byte " << i << " is " << int{got.packed[i]} << ", expected "
                     << int{want.packed[i]});
    return;
  }
}

std::vector<std::uint8_t> swapped(std::vector<std::uint8_t> bytes) {
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>((byte << 4) | (byte >> 4));
  return bytes;
}

// The vectors that bitsandbytes wrote.
class Golden {
 public:
  std::vector<float> floats(const std::string& name) const {
    std::vector<float> values(static_cast<std::size_t>(at(name).count()));
    read_floats(at(name), file_.path(), values.data());
    return values;
  }
  std::vector<std::uint8_t> bytes(const std::string& name) const {
    const std::span<const std::byte> data = at(name).data;
    std::vector<std::uint8_t> values(data.size());
    std::memcpy(values.data(), data.data(), data.size());
    return values;
  }

 private:
  const SafetensorsTensor& at(const std::string& name) const {
    const SafetensorsTensor* tensor = file_.find(name);
    BOOST_REQUIRE_MESSAGE(tensor != nullptr, name);
    return *tensor;
  }
  SafetensorsFile file_{REPRISE_TEST_DATA "/golden/nf4_vectors.safetensors"};
};

std::vector<float> dequantized(const Quantized& weight, std::int64_t count, NibbleOrder order) {
  std::vector<float> values(static_cast<std::size_t>(count));
  dequantize_nf4({.packed = weight.packed.data(),
                  .absmax = weight.absmax.data(),
                  .n = 1,
                  .k = count,
                  .block_size = 64,
                  .order = order},
                 values.data());
  return values;
}

BOOST_AUTO_TEST_SUITE(nf4_format)

BOOST_AUTO_TEST_CASE(codebook_has_the_bits_of_bitsandbytes) {
  BOOST_TEST(same_bits({kNf4Codebook.begin(), kNf4Codebook.end()}, Golden().floats("codebook")));
  BOOST_TEST(kNf4Codebook[kNf4ZeroCode] == 0.0f);
}

BOOST_AUTO_TEST_CASE(quantizes_and_dequantizes_the_golden_vectors_bit_for_bit) {
  const Golden golden;
  for (const std::string& name : kCases) {
    const std::vector<float> weight = golden.floats(name + ".weight");
    const Quantized high{golden.bytes(name + ".packed"), golden.floats(name + ".absmax")};
    const Quantized low{swapped(high.packed), high.absmax};
    for (const NibbleOrder order : kOrders) {
      const Quantized& want = order == NibbleOrder::kHighFirst ? high : low;
      check_same(quantized(weight, 64, order), want, name);
      const auto count = static_cast<std::int64_t>(weight.size());
      BOOST_TEST(same_bits(dequantized(want, count, order), golden.floats(name + ".dequant")),
                 name << ": dequantised values differ");
    }
  }
}

BOOST_AUTO_TEST_CASE(expands_double_quantised_scales_bit_for_bit) {
  const Golden golden;
  const std::vector<float> map = golden.floats("dynamic_map");
  for (const std::string& name : kCases) {
    const std::vector<std::uint8_t> codes = golden.bytes(name + ".dq.absmax_u8");
    const std::vector<float> nested = golden.floats(name + ".dq.nested_absmax");
    Quantized weight{golden.bytes(name + ".packed"), std::vector<float>(codes.size())};
    expand_nested_absmax({.codes = codes.data(),
                          .map = map.data(),
                          .nested_absmax = nested.data(),
                          .blocks = static_cast<std::int64_t>(codes.size()),
                          .nested_block_size = 256,
                          .offset = golden.floats(name + ".dq.offset").at(0)},
                         weight.absmax.data());
    BOOST_TEST(same_bits(weight.absmax, golden.floats(name + ".dq.absmax")), name);
    const std::vector<float> want = golden.floats(name + ".dq.dequant");
    const auto count = static_cast<std::int64_t>(want.size());
    BOOST_TEST(same_bits(dequantized(weight, count, NibbleOrder::kHighFirst), want), name);
  }
}

BOOST_AUTO_TEST_CASE(agrees_with_the_rule_for_every_block_size_and_count) {
  Random random(test_seed(1));
  for (const std::int64_t block : {64, 128, 256, 512, 1024, 2048, 4096}) {
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, std::int64_t{15}, block - 1,
                                     block, block + 1, 3 * block + 17}) {
      const double scale = std::exp2(static_cast<double>(random.between(-100, 100)));
      const std::vector<float> values = normal_values(random, count, scale);
      for (const NibbleOrder order : kOrders) {
        check_same(quantized(values, block, order),
                   slow_quantized(values, static_cast<std::size_t>(block), order),
                   "block " + std::to_string(block) + ", count " + std::to_string(count));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(ranges_that_start_at_block_borders_give_the_bytes_of_the_whole) {
  Random random(test_seed(2));
  const std::vector<float> values = normal_values(random, 10 * 64 + 33);
  const Quantized whole = quantized(values, 64, NibbleOrder::kHighFirst);
  const Quantized head = quantized({values.begin(), values.begin() + 3 * 64}, 64, kOrders[0]);
  const Quantized tail = quantized({values.begin() + 3 * 64, values.end()}, 64, kOrders[0]);
  Quantized joined = head;
  joined.packed.insert(joined.packed.end(), tail.packed.begin(), tail.packed.end());
  joined.absmax.insert(joined.absmax.end(), tail.absmax.begin(), tail.absmax.end());
  check_same(joined, whole, "two ranges");
}

BOOST_AUTO_TEST_CASE(a_tie_takes_the_lower_code) {
  for (std::size_t code = 0; code < 15; ++code) {
    const float tie = (kNf4Codebook[code] + kNf4Codebook[code + 1]) / 2.0f;
    std::vector<float> values(64, tie);
    values[0] = 1;  // the absmax, so that nothing is scaled
    values[2] = std::nextafter(tie, 2.0f);
    const Quantized weight = quantized(values, 64, NibbleOrder::kHighFirst);
    BOOST_TEST(nf4_code(weight.packed.data(), 1, kOrders[0]) == static_cast<int>(code));
    BOOST_TEST(nf4_code(weight.packed.data(), 2, kOrders[0]) == static_cast<int>(code) + 1);
  }
}

// A whole block multiplies by the reciprocal, a short one divides. The two differ by an ulp, which
// shows only next to a midpoint: values are searched for where they give different codes.
BOOST_AUTO_TEST_CASE(whole_blocks_multiply_and_short_blocks_divide) {
  Random random(test_seed(3));
  int found = 0;
  for (int attempt = 0; attempt < 20000; ++attempt) {
    const auto largest = static_cast<float>(1 + random.uniform());
    const auto code = static_cast<std::size_t>(random.between(7, 14));
    const float midpoint = (kNf4Codebook[code] + kNf4Codebook[code + 1]) / 2.0f;
    const float value = std::nextafter(midpoint * largest, random.uniform() < 0.5 ? 0.0f : 2.0f);
    const int product = slow_code(value * (1.0f / largest)), quotient = slow_code(value / largest);
    if (product == quotient) continue;
    ++found;
    std::vector<float> values(64 + 2, value);
    values[0] = values[64] = largest;
    const Quantized weight = quantized(values, 64, NibbleOrder::kHighFirst);
    BOOST_TEST(nf4_code(weight.packed.data(), 1, kOrders[0]) == product);
    BOOST_TEST(nf4_code(weight.packed.data(), 65, kOrders[0]) == quotient);
  }
  BOOST_TEST(found > 100);
}

BOOST_AUTO_TEST_CASE(zero_and_denormal_blocks) {
  const Quantized zeros = quantized(std::vector<float>(64, -0.0f), 64, NibbleOrder::kHighFirst);
  BOOST_TEST(zeros.absmax[0] == 0.0f);
  BOOST_TEST(zeros.packed == std::vector<std::uint8_t>(32, 0x77), boost::test_tools::per_element());

  const Quantized denormal = quantized(std::vector<float>(64, 9e-39f), 64, NibbleOrder::kLowFirst);
  BOOST_TEST(denormal.absmax[0] == 9e-39f);
  BOOST_TEST(denormal.packed == std::vector<std::uint8_t>(32, 0x77),
             boost::test_tools::per_element());

  // 65 zeros: the second block is short, its absmax is never 0; the padding is code 7 as well.
  const Quantized short_block = quantized(std::vector<float>(65, 0), 64, NibbleOrder::kHighFirst);
  BOOST_TEST(short_block.absmax[1] == 1e-38f);
  BOOST_TEST(int{short_block.packed[32]} == 0x77);

  const float largest = std::numeric_limits<float>::max();
  const Quantized huge = quantized(std::vector<float>(64, largest), 64, NibbleOrder::kHighFirst);
  BOOST_TEST(huge.absmax[0] == largest);
  BOOST_TEST(int{huge.packed[0]} == 0xff);
}

BOOST_AUTO_TEST_CASE(the_padding_of_an_odd_count_is_code_7_in_either_order) {
  for (const NibbleOrder order : kOrders) {
    const Quantized weight = quantized({1, 1, 1}, 64, order);
    BOOST_TEST(nf4_code(weight.packed.data(), 2, order) == 15);
    BOOST_TEST(nf4_code(weight.packed.data(), 3, order) == 7);
  }
}

BOOST_AUTO_TEST_CASE(finds_the_first_value_that_is_not_finite) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(), std::bit_cast<float>(0xff800001u)};
  // 1024 and its neighbours are where the search cuts its input.
  for (const std::int64_t index : {0, 1, 63, 1023, 1024, 1025, 2999}) {
    for (const float value : bad) {
      std::vector<float> values(3000, std::numeric_limits<float>::max());
      values.back() = value;  // a later one does not win
      values[static_cast<std::size_t>(index)] = value;
      BOOST_TEST(first_not_finite(values.data(), 3000) == index);
      BOOST_TEST(first_not_finite(values.data(), index) == -1);
    }
  }
  BOOST_TEST(first_not_finite(nullptr, 0) == -1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
