#include "runtime/model/weight_sink.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "reprise/kernels/error.h"
#include "reprise/kernels/float16.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise {
namespace {

// Elements in memory as FP32 at a time, per thread: 256 KiB, within the second-level cache.
constexpr std::int64_t kRange = 1 << 16;

// Index of the first value that is not finite, or -1, after filling; the caller throws, since work
// on a pool must not.
std::int64_t fill_and_check(const FillRange& fill, std::int64_t begin, std::int64_t count,
                            float* values) {
  fill(begin, count, values);
  const std::int64_t bad = first_not_finite(values, count);
  return bad < 0 ? -1 : begin + bad;
}

[[noreturn]] void refuse_not_finite(const std::string& name, std::int64_t index,
                                    std::int64_t columns) {
  throw InputError(name + ": the value at index " + std::to_string(index) + " (row " +
                   std::to_string(index / columns) + ", column " + std::to_string(index % columns) +
                   ") is NaN or infinite");
}

}  // namespace

Nf4Weight quantize_weight(const QuantizeRequest& request, const FillRange& fill) {
  const std::int64_t count = request.n * request.k;
  Nf4Weight weight{.packed = Buffer(nf4_packed_bytes(count), request.name),
                   .absmax = Buffer(nf4_blocks(count, request.block_size) * 4, request.name),
                   .n = request.n,
                   .k = request.k,
                   .block_size = request.block_size,
                   .order = NibbleOrder::kHighFirst};
  auto* packed = reinterpret_cast<std::uint8_t*>(weight.packed.data());
  auto* absmax = reinterpret_cast<float*>(weight.absmax.data());
  const std::int64_t ranges = (count + kRange - 1) / kRange;
  const int threads = request.pool == nullptr ? 1 : request.pool->threads();
  std::vector<std::vector<float>> values(static_cast<std::size_t>(threads),
                                         std::vector<float>(static_cast<std::size_t>(kRange)));
  std::vector<std::int64_t> bad(static_cast<std::size_t>(ranges), -1);
  const auto quantize_range = [&](std::int64_t range, int worker) {
    float* out = values[static_cast<std::size_t>(worker)].data();
    const std::int64_t begin = range * kRange, size = std::min(kRange, count - begin);
    std::int64_t& bad_index = bad[static_cast<std::size_t>(range)];
    bad_index = fill_and_check(fill, begin, size, out);
    if (bad_index >= 0) return;
    quantize_nf4(out, size, request.block_size, weight.order, packed + begin / 2,
                 absmax + begin / request.block_size);
  };
  if (request.pool == nullptr) {
    for (std::int64_t range = 0; range < ranges; ++range) quantize_range(range, 0);
  } else {
    request.pool->parallel_dynamic(ranges, quantize_range);
  }
  for (const std::int64_t index : bad) {
    if (index >= 0) refuse_not_finite(request.name, index, request.k);
  }
  return weight;
}

Tensor dense_tensor(DType dtype, Dims dims, const std::string& name, const FillRange& fill) {
  Tensor tensor = make_tensor(dtype, dims, name);
  std::vector<float> values(static_cast<std::size_t>(std::min(kRange, dims.count())));
  for (std::int64_t begin = 0; begin < dims.count(); begin += kRange) {
    const std::int64_t size = std::min(kRange, dims.count() - begin);
    const std::int64_t bad = fill_and_check(fill, begin, size, values.data());
    if (bad >= 0) refuse_not_finite(name, bad, dims.last());
    if (dtype == DType::kF32) {
      std::memcpy(tensor.view().as<float>() + begin, values.data(),
                  static_cast<std::size_t>(size) * sizeof(float));
    } else {
      BFloat16* out = tensor.view().as<BFloat16>() + begin;
      for (std::int64_t i = 0; i < size; ++i) {
        out[i] = to_bfloat16(values[static_cast<std::size_t>(i)]);
      }
    }
  }
  return tensor;
}

}  // namespace reprise
