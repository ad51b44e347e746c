// Dequantisation of whole matrices and conversions between FP32 and bf16, at the speed of a copy.
#include "kernels/cpu/operand_kernels.h"

#include "kernels/cpu/lanes_isa.h"
#include "kernels/cpu/nf4_panel_isa.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

Floats load(const float* from) { return load_as<Floats>(from); }
Floats load(const BFloat16* from) { return widen(load_as<Halves>(from)); }
void store(Floats values, float* to) { store_as(values, to); }
void store(Floats values, BFloat16* to) { store_as(narrow(values), to); }
void assign(float value, float& to) { to = value; }
void assign(float value, BFloat16& to) { to = to_bfloat16(value); }

template <class In, class Out>
void convert(const In* values, std::int64_t count, Out* out) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(load(values + i), out + i);
  if (i == count) return;
  In last_in[kLanes] = {};
  Out last_out[kLanes];
  for (std::int64_t j = i; j < count; ++j) last_in[j - i] = values[j];
  store(load(last_in), last_out);
  for (std::int64_t j = i; j < count; ++j) out[j] = last_out[j - i];
}

void store_neighbours(const nf4_detail::Neighbours& values, float* to) {
  nf4_detail::store_interleaved(bits_of<Ints>(values.even), bits_of<Ints>(values.odd), to);
}
void store_neighbours(const nf4_detail::Neighbours& values, BFloat16* to) {
  store_as(bf16_pairs(values.even, values.odd), to);
}

template <class Out>
void dequantize(const Nf4View& weight, std::int64_t begin, std::int64_t end, Out* out) {
  std::int64_t e = begin;
  for (; e + 2 * kLanes <= end; e += 2 * kLanes) {
    store_neighbours(nf4_detail::decode_neighbours(weight, e), out + (e - begin));
  }
  for (; e < end; ++e) {
    assign(nf4_detail::value_at(weight, e / weight.k, e % weight.k), out[e - begin]);
  }
}

}  // namespace

const OperandKernels kOperandKernels = {
    .dequantize_f32 = dequantize<float>,
    .dequantize_bf16 = dequantize<BFloat16>,
    .narrow = convert<float, BFloat16>,
    .widen = convert<BFloat16, float>,
};

}  // namespace reprise::cpu::REPRISE_ISA
