// The vector functions of every instruction set against the scalar ones and the C++ library.
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "reprise/kernels/cpu_ops.h"
#include "tests/kernels/lanes_probe.h"

namespace reprise::test {
namespace {

struct NamedProbe {
  const char* name;
  LanesProbe lanes;
};

std::vector<NamedProbe> probes() {
  std::vector<NamedProbe> all = {{"generic", cpu::generic::lanes_probe()}};
#if defined(REPRISE_TEST_X86_64)
  const Isa isa = detect_isa();
  if (isa >= Isa::kAvx2) all.push_back({"avx2", cpu::avx2::lanes_probe()});
  if (isa >= Isa::kAvx512) all.push_back({"avx512", cpu::avx512::lanes_probe()});
  if (isa >= Isa::kAvx512Bf16) all.push_back({"avx512_bf16", cpu::avx512_bf16::lanes_probe()});
  if (isa >= Isa::kAmx) all.push_back({"amx", cpu::amx::lanes_probe()});
#endif
  return all;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> exponentials(const LanesProbe& lanes, std::vector<float> x) {
  const std::size_t count = x.size();
  x.resize((count + 15) / 16 * 16);
  std::vector<float> y(x.size());
  lanes.exponential(x.data(), static_cast<std::int64_t>(x.size()), y.data());
  y.resize(count);
  return y;
}

// Every upper half there is, with lower halves around the ones where rounding turns.
std::vector<float> bit_patterns() {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>((upper << 16) | lower));
    }
  }
  return values;  // 6 * 65536, whole vectors
}

BOOST_AUTO_TEST_SUITE(vec)

BOOST_AUTO_TEST_CASE(exp_is_within_two_ten_millionths) {
  std::vector<float> x;
  for (int i = 0; i <= 300000; ++i) {
    x.push_back(static_cast<float>(-87.33 + (87.33 + 88.72) * i / 300000));
  }
  for (const NamedProbe& probe : probes()) {
    const std::vector<float> y = exponentials(probe.lanes, x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, std::abs(y[i] / std::exp(static_cast<double>(x[i])) - 1));
    }
    BOOST_TEST(worst <= 2e-7, probe.name << ": " << worst);
  }
}

BOOST_AUTO_TEST_CASE(exp_has_the_right_limits) {
  for (const NamedProbe& probe : probes()) {
    const std::vector<float> y = exponentials(
        probe.lanes,
        {0.0f, -0.0f, -87.34f, -100, -1e30f, -kInfinity, 88.73f, 1e30f, kInfinity, kNaN});
    BOOST_TEST_CONTEXT(probe.name) {
      BOOST_TEST(y[0] == 1);
      BOOST_TEST(y[1] == 1);
      for (std::size_t i = 2; i < 6; ++i) BOOST_TEST(y[i] == 0);
      for (std::size_t i = 6; i < 9; ++i) BOOST_TEST(y[i] == kInfinity);
      BOOST_TEST(std::isnan(y[9]));
    }
  }
}

BOOST_AUTO_TEST_CASE(bf16_is_rounded_as_the_scalar_function_does) {
  const std::vector<float> x = bit_patterns();
  const auto count = static_cast<std::int64_t>(x.size());
  std::vector<BFloat16> narrowed(x.size());
  std::vector<float> rounded(x.size());
  for (const NamedProbe& probe : probes()) {
    probe.lanes.narrow(x.data(), count, narrowed.data());
    probe.lanes.round_to_bf16(x.data(), count, rounded.data());
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint32_t expected = to_bfloat16(x[i]).bits;
      wrong += narrowed[i].bits != expected;
      wrong += std::bit_cast<std::uint32_t>(rounded[i]) != expected << 16;
    }
    BOOST_TEST(wrong == 0, probe.name);
  }
}

BOOST_AUTO_TEST_CASE(bf16_is_widened_exactly) {
  std::vector<BFloat16> x;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    x.push_back({static_cast<std::uint16_t>(bits)});
  }
  std::vector<float> y(x.size());
  for (const NamedProbe& probe : probes()) {
    probe.lanes.widen(x.data(), static_cast<std::int64_t>(x.size()), y.data());
    std::int64_t wrong = 0;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      wrong += std::bit_cast<std::uint32_t>(y[bits]) != bits << 16;
    }
    BOOST_TEST(wrong == 0, probe.name);
  }
}

BOOST_AUTO_TEST_CASE(lanes_are_transposed_and_reduced_in_order) {
  for (const NamedProbe& probe : probes()) {
    const std::int64_t lanes = probe.lanes.lanes;
    std::vector<std::int32_t> x(static_cast<std::size_t>(lanes * lanes)), y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::int32_t>(i);
    probe.lanes.transpose(x.data(), y.data());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < lanes * lanes; ++i) {
      wrong += y[static_cast<std::size_t>(i)] != i % lanes * lanes + i / lanes;
    }
    BOOST_TEST(wrong == 0, probe.name);

    // Each sum is exact but the first: 2^24 + 1 rounds to 2^24, so another order shows.
    std::vector<float> values(static_cast<std::size_t>(lanes), 1.0f);
    values[0] = 0x1p24f;
    BOOST_TEST(probe.lanes.sum_of(values.data()) == 0x1p24f, probe.name);
    values.back() = 0x1p25f;
    BOOST_TEST(probe.lanes.largest_of(values.data()) == 0x1p25f, probe.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
