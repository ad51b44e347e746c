// The ops that work element by element, by their formulas.
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/tables.h"

namespace reprise::reference {
namespace {

void embedding_forward(const EmbeddingForwardArgs& args, const Execution&) {
  const std::int64_t m_count = args.y.dims[0], c_count = args.y.dims[1];
  for (std::int64_t m = 0; m < m_count; ++m) {
    const std::int64_t id = args.ids.as<std::int32_t>()[m];
    for (std::int64_t c = 0; c < c_count; ++c) {
      store(args.y, m * c_count + c, load(args.table, id * c_count + c));
    }
  }
}

void rope(const RopeArgs& args, const Execution&) {
  const std::int64_t m_count = args.x.dims[0], width = args.x.dims[1];
  const std::int64_t seq = args.table.dims[0], half = args.table.dims[1];
  const double turn = args.direction == RopeDirection::kForward ? 1 : -1;
  for (std::int64_t m = 0; m < m_count; ++m) {
    for (std::int64_t h = 0; h < args.heads; ++h) {
      for (std::int64_t d = 0; d < half; ++d) {
        const std::int64_t angle = ((m % seq) * half + d) * 2;
        const double cos = load(args.table, angle), sin = turn * load(args.table, angle + 1);
        const std::int64_t first = m * width + h * 2 * half + d, second = first + half;
        const double a = load(args.x, first), b = load(args.x, second);
        store(args.y, first, a * cos - b * sin);
        store(args.y, second, b * cos + a * sin);
      }
    }
  }
}

double sigmoid(double t) { return 1 / (1 + std::exp(-t)); }

void swiglu_forward(const SwigluForwardArgs& args, const Execution&) {
  for (std::int64_t i = 0; i < args.y.count(); ++i) {
    const double gate = load(args.gate, i);
    store(args.y, i, gate * sigmoid(gate) * load(args.up, i));
  }
}

void swiglu_backward(const SwigluBackwardArgs& args, const Execution&) {
  for (std::int64_t i = 0; i < args.grad_y.count(); ++i) {
    const double grad_y = load(args.grad_y, i), gate = load(args.gate, i), up = load(args.up, i);
    const double s = sigmoid(gate);
    store(args.grad_up, i, grad_y * gate * s);
    store(args.grad_gate, i, grad_y * up * s * (1 + gate * (1 - s)));
  }
}

void residual(const ResidualArgs& args, const Execution&) {
  for (std::int64_t i = 0; i < args.y.count(); ++i) {
    store(args.y, i, load(args.a, i) + load(args.b, i));
  }
}

void fill(const FillArgs& args, const Execution&) {
  for (std::int64_t i = 0; i < args.x.count(); ++i) {
    store(args.x, i, static_cast<double>(args.value));
  }
}

}  // namespace

void add_pointwise(OpTable& table) {
  table.embedding_forward.push_back({"reference", check, nullptr, embedding_forward});
  table.rope.push_back({"reference", check, nullptr, rope});
  table.swiglu_forward.push_back({"reference", check, nullptr, swiglu_forward});
  table.swiglu_backward.push_back({"reference", check, nullptr, swiglu_backward});
  table.residual.push_back({"reference", check, nullptr, residual});
  table.fill.push_back({"reference", check, nullptr, fill});
}

}  // namespace reprise::reference
