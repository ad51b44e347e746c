// RMS normalisation by its formula.
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/tables.h"

namespace reprise::reference {
namespace {

void rms_norm_forward(const RmsNormForwardArgs& args, const Execution&) {
  const std::int64_t m_count = args.x.dims[0], c_count = args.x.dims[1];
  for (std::int64_t m = 0; m < m_count; ++m) {
    double squares = 0;
    for (std::int64_t c = 0; c < c_count; ++c) {
      const double x = load(args.x, m * c_count + c);
      squares += x * x;
    }
    const double mean = squares / static_cast<double>(c_count);
    const double inv_rms = 1 / std::sqrt(mean + static_cast<double>(args.eps));
    store(args.inv_rms, m, inv_rms);
    for (std::int64_t c = 0; c < c_count; ++c) {
      const std::int64_t i = m * c_count + c;
      store(args.y, i, load(args.x, i) * inv_rms * load(args.weight, c));
    }
  }
}

void rms_norm_backward(const RmsNormBackwardArgs& args, const Execution&) {
  const std::int64_t m_count = args.x.dims[0], c_count = args.x.dims[1];
  for (std::int64_t m = 0; m < m_count; ++m) {
    const double inv_rms = load(args.inv_rms, m);
    double dot = 0;
    for (std::int64_t c = 0; c < c_count; ++c) {
      const std::int64_t i = m * c_count + c;
      dot += load(args.grad_y, i) * load(args.weight, c) * load(args.x, i);
    }
    const double mean = dot / static_cast<double>(c_count);
    for (std::int64_t c = 0; c < c_count; ++c) {
      const std::int64_t i = m * c_count + c;
      const double g = load(args.grad_y, i) * load(args.weight, c);
      const double grad = inv_rms * (g - load(args.x, i) * inv_rms * inv_rms * mean);
      store(args.grad_x, i, grad, args.mode);
    }
  }
}

}  // namespace

void add_norm(OpTable& table) {
  table.rms_norm_forward.push_back({"reference", check, nullptr, rms_norm_forward});
  table.rms_norm_backward.push_back({"reference", check, nullptr, rms_norm_backward});
}

}  // namespace reprise::reference
