// Quantises weights into bitsandbytes' layout.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "reprise/kernels/error.h"
#include "reprise/kernels/nf4.h"
#include "reprise/runtime/bnb_weight.h"

namespace reprise {
namespace {

constexpr std::int64_t kNestedBlock = 256;  // bitsandbytes knows no other

// PyTorch's linspace in FP32: from the nearer end, product and sum rounded once.
float linspace(float begin, float end, int steps, int i) {
  const float step = (end - begin) / static_cast<float>(steps - 1);
  return i < steps / 2 ? std::fma(step, static_cast<float>(i), begin)
                       : std::fma(-step, static_cast<float>(steps - 1 - i), end);
}

std::array<float, 256> make_dynamic_map() {
  constexpr int kDecades = 7;
  std::array<float, 256> map{};
  std::size_t count = 0;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int steps = (1 << decade) + 1;
    const auto scale = static_cast<float>(std::pow(10.0, decade - (kDecades - 1)));
    for (int i = 0; i + 1 < steps; ++i) {
      const float mean = (linspace(0.1f, 1, steps, i) + linspace(0.1f, 1, steps, i + 1)) / 2;
      map[count++] = scale * mean;
      map[count++] = -scale * mean;
    }
  }
  map[count++] = 0;
  map[count++] = 1;
  std::sort(map.begin(), map.end());
  return map;
}

// The code whose value is nearest; the lower one of two that are equally near.
std::uint8_t nearest_code(float value) {
  const std::array<float, 256>& map = dynamic_map();
  const auto above = std::lower_bound(map.begin(), map.end(), value);
  if (above == map.begin()) return 0;
  const auto below = above - 1;
  const bool take_below = above == map.end() || value - *below <= *above - value;
  return static_cast<std::uint8_t>((take_below ? below : above) - map.begin());
}

void quantize_scales(const std::vector<float>& absmax, float offset, BnbTensors& result) {
  const auto blocks = static_cast<std::int64_t>(absmax.size());
  result.absmax_codes.resize(absmax.size());
  for (std::int64_t begin = 0; begin < blocks; begin += kNestedBlock) {
    const auto first = static_cast<std::size_t>(begin);
    const auto last = static_cast<std::size_t>(std::min(begin + kNestedBlock, blocks));
    float largest = 0;
    for (std::size_t i = first; i < last; ++i) {
      largest = std::max(largest, std::abs(absmax[i] - offset));
    }
    result.nested_absmax.push_back(largest);
    for (std::size_t i = first; i < last; ++i) {
      result.absmax_codes[i] = nearest_code(largest > 0 ? (absmax[i] - offset) / largest : 0.0f);
    }
  }
}

// As Python's json writes a float, which reads back as the same double.
std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  std::string result(text, end);
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result;
}

std::string state_text(std::int64_t n, std::int64_t k, const std::string& dtype_name,
                       const BnbOptions& options, float offset) {
  std::string text =
      "{\"quant_type\": \"nf4\", \"blocksize\": " + std::to_string(options.block_size) +
      ", \"dtype\": \"" + dtype_name + "\", \"shape\": " + to_string(std::vector{n, k});
  if (options.double_quant == DoubleQuant::kOn) {
    text += ", \"nested_blocksize\": " + std::to_string(kNestedBlock) +
            ", \"nested_dtype\": \"float32\", \"nested_offset\": " +
            number_text(static_cast<double>(offset));
  }
  return text + "}";
}

}  // namespace

const std::array<float, 256>& dynamic_map() {
  static const std::array<float, 256> kMap = make_dynamic_map();
  return kMap;
}

BnbTensors quantize_bnb(const float* values, std::int64_t n, std::int64_t k,
                        const std::string& dtype_name, const BnbOptions& options) {
  const std::int64_t count = n * k;
  BnbTensors result;
  result.packed.resize(static_cast<std::size_t>(nf4_packed_bytes(count)));
  result.absmax.resize(static_cast<std::size_t>(nf4_blocks(count, options.block_size)));
  quantize_nf4(values, count, options.block_size, NibbleOrder::kHighFirst, result.packed.data(),
               result.absmax.data());
  float offset = 0;
  if (options.double_quant == DoubleQuant::kOn) {
    const double sum = std::accumulate(result.absmax.begin(), result.absmax.end(), 0.0);
    offset = static_cast<float>(sum / static_cast<double>(result.absmax.size()));
    quantize_scales(result.absmax, offset, result);
    result.absmax.clear();
  }
  result.state = state_text(n, k, dtype_name, options, offset);
  return result;
}

std::vector<SafetensorsEntry> bnb_entries(const std::string& name, std::int64_t n, std::int64_t k,
                                          const BnbTensors& tensors) {
  const auto length = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
  const bool nested = !tensors.absmax_codes.empty();
  std::vector<SafetensorsEntry> entries;
  entries.push_back(
      {name, "U8", {nf4_packed_bytes(n * k), 1}, std::as_bytes(std::span(tensors.packed))});
  if (nested) {
    entries.push_back({name + ".absmax",
                       "U8",
                       {length(tensors.absmax_codes)},
                       std::as_bytes(std::span(tensors.absmax_codes))});
    entries.push_back({name + ".nested_absmax",
                       "F32",
                       {length(tensors.nested_absmax)},
                       std::as_bytes(std::span(tensors.nested_absmax))});
    entries.push_back(
        {name + ".nested_quant_map", "F32", {256}, std::as_bytes(std::span(dynamic_map()))});
  } else {
    entries.push_back({name + ".absmax",
                       "F32",
                       {length(tensors.absmax)},
                       std::as_bytes(std::span(tensors.absmax))});
  }
  entries.push_back({name + ".quant_map", "F32", {16}, std::as_bytes(std::span(kNf4Codebook))});
  entries.push_back({name + ".quant_state.bitsandbytes__nf4",
                     "U8",
                     {length(tensors.state)},
                     std::as_bytes(std::span(tensors.state))});
  return entries;
}

}  // namespace reprise
