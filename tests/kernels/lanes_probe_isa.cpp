// Compiled once per instruction set, with the flags of its kernels.
#include "kernels/cpu/exp_isa.h"
#include "tests/kernels/lanes_probe.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

void probe_exponential(const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store_as(exponential(load_as<Floats>(x + i)), y + i);
  }
}
void probe_narrow(const float* x, std::int64_t count, BFloat16* y) {
  for (std::int64_t i = 0; i < count; i += kLanes) store_as(narrow(load_as<Floats>(x + i)), y + i);
}
void probe_round(const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store_as(round_to_bf16(load_as<Floats>(x + i)), y + i);
  }
}
void probe_widen(const BFloat16* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; i += kLanes) store_as(widen(load_as<Halves>(x + i)), y + i);
}
void probe_transpose(const std::int32_t* x, std::int32_t* y) {
  Ints rows[kLanes];
  for (int row = 0; row < kLanes; ++row) rows[row] = load_as<Ints>(x + row * kLanes);
  transpose(rows);
  for (int row = 0; row < kLanes; ++row) store_as(rows[row], y + row * kLanes);
}
float probe_sum(const float* x) { return sum_of(load_as<Floats>(x)); }
float probe_largest(const float* x) { return largest_of(load_as<Floats>(x)); }

}  // namespace

test::LanesProbe lanes_probe() {
  return {kLanes,      probe_exponential, probe_narrow, probe_round,
          probe_widen, probe_transpose,   probe_sum,    probe_largest};
}

}  // namespace reprise::cpu::REPRISE_ISA
