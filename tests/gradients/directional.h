// Finite-difference checks of backward ops. The forward pass is always the reference in double
// precision; only its stored output is FP32. Inputs and directions lie on a coarse dyadic grid, so
// that x + t * d is exact in FP32 for every step used and no input rounding enters.
//
//   D(h) = (L(x + h d) - L(x - h d)) / 2h,  L = sum_i grad_y[i] * y[i], made in double
//   value = (4 D(h/2) - D(h)) / 3           (Richardson)
//
// Error of the value: each y[i] is stored with at most 2^-24 |y[i]|, so D(h) is off by at most
// 2^-24 sum |grad_y y| / h; 3 times that after Richardson. D(h/2) is off by c h^2 / 4 where
// D(h) - D(h/2) = 3/4 c h^2, and Richardson leaves a term in h^4: at most a quarter of the
// difference as long as the series converges. The gradient itself is FP32: sums of at most a few
// hundred products, 2^-19 of sum |grad * d|.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reprise/kernels/op_table.h"
#include "reprise/kernels/thread_pool.h"
#include "tests/support/random.h"

namespace reprise::test {

// Normal values of scale 1 on the grid of 2^-10, at most 4 in magnitude.
std::vector<float> grid_values(Random& random, std::int64_t count);

struct GradientCheck {
  std::string what;                             // printed when it fails
  std::vector<float>* input = nullptr;          // what `forward` reads; restored afterwards
  const std::vector<float>* grad = nullptr;     // of L in that input, from the op under test
  std::function<std::vector<float>()> forward;  // y as stored
  const std::vector<float>* grad_y = nullptr;
};

// Compares grad . d with the finite difference along several random directions d.
void check_gradient(const GradientCheck& check, Random& random);

// The reference, and the CPU's table of each instruction set that this machine has.
struct NamedTable {
  std::string name;
  OpTable ops;
};
const std::vector<NamedTable>& tables_under_test();
const OpTable& reference_table();

// Runs the first implementation that supports the arguments. False: the table has none at all.
template <class Args>
bool run_op(const Implementations<Args>& list, Args args, const char* op) {
  if (list.empty()) return false;
  ThreadPool pool(2);
  const Implementation<Args>& chosen = select(list, args, op);
  std::vector<double> scratch;
  if constexpr (requires { args.scratch; }) {
    const std::int64_t bytes =
        chosen.scratch_bytes == nullptr ? 0 : chosen.scratch_bytes(args, pool.threads());
    // 64-byte alignment of the first element, for any allocator.
    scratch.resize(static_cast<std::size_t>(bytes) / sizeof(double) + 16);
    const auto start = reinterpret_cast<std::uintptr_t>(scratch.data());
    args.scratch = {scratch.data() + (64 - start % 64) % 64 / sizeof(double), bytes};
  }
  chosen.run(args, {.pool = &pool});
  return true;
}

// Whether the op ran; fails the test when the table lacks it.
bool ran(const NamedTable& table, bool has_run, const char* op);

// FP32 views of vectors.
inline View view(std::vector<float>& values, Dims dims) {
  return {values.data(), DType::kF32, dims};
}
inline ConstView view(const std::vector<float>& values, Dims dims) {
  return {values.data(), DType::kF32, dims};
}
inline std::vector<float> zeros(std::int64_t count) {
  return std::vector<float>(static_cast<std::size_t>(count));
}

}  // namespace reprise::test
