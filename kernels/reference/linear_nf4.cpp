// The frozen linear layer and its adapter by their formulas. The adapter's own products use A, B, u
// and grad_u as they are, in FP32, whatever the compute type: implementations may round them to the
// compute type, and tests allow for it.
#include "kernels/reference/elements.h"
#include "kernels/reference/tables.h"

namespace reprise::reference {
namespace {

double dropped(const ConstView& x, std::int64_t row, std::int64_t column, const Dropout& dropout,
               ComputeType compute) {
  const std::int64_t index = row * x.dims[1] + column;
  return operand(load(x, index), compute) * static_cast<double>(dropout_factor(dropout, index));
}

void linear_nf4_forward(const LinearNf4ForwardArgs& args, const Execution&) {
  const std::int64_t m_count = args.x.dims[0], n_count = args.weight.n, k_count = args.weight.k;
  const std::int64_t rank = args.lora.a.present() ? args.lora.a.dims[0] : 0;
  for (std::int64_t m = 0; m < m_count; ++m) {
    for (std::int64_t r = 0; r < rank; ++r) {
      double sum = 0;
      for (std::int64_t k = 0; k < k_count; ++k) {
        sum += dropped(args.x, m, k, args.lora.dropout, args.compute) *
               load(args.lora.a, r * k_count + k);
      }
      store(args.lora.u, m * rank + r, sum);
    }
    for (std::int64_t n = 0; n < n_count; ++n) {
      double sum = args.bias.present() ? load(args.bias, n) : 0;
      for (std::int64_t k = 0; k < k_count; ++k) {
        sum += operand(load(args.x, m * k_count + k), args.compute) *
               weight_at(args.weight, n, k, args.compute);
      }
      for (std::int64_t r = 0; r < rank; ++r) {
        sum += static_cast<double>(args.lora.scale) * load(args.lora.u, m * rank + r) *
               load(args.lora.b, n * rank + r);
      }
      store(args.y, m * n_count + n, sum, args.mode);
    }
  }
}

void linear_nf4_backward(const LinearNf4BackwardArgs& args, const Execution&) {
  const std::int64_t m_count = args.grad_y.dims[0], n_count = args.weight.n,
                     k_count = args.weight.k;
  const std::int64_t rank = args.lora.a.present() ? args.lora.a.dims[0] : 0;
  for (std::int64_t m = 0; m < m_count; ++m) {
    for (std::int64_t k = 0; k < k_count; ++k) {
      double sum = 0, adapter = 0;
      for (std::int64_t n = 0; n < n_count; ++n) {
        sum += operand(load(args.grad_y, m * n_count + n), args.compute) *
               weight_at(args.weight, n, k, args.compute);
      }
      for (std::int64_t r = 0; r < rank; ++r) {
        adapter += load(args.lora.grad_u, m * rank + r) * load(args.lora.a, r * k_count + k);
      }
      const std::int64_t index = m * k_count + k;
      sum += adapter * static_cast<double>(dropout_factor(args.lora.dropout, index));
      store(args.grad_x, index, sum, args.mode);
    }
  }
}

void lora_backward(const LoraBackwardArgs& args, const Execution&) {
  const std::int64_t m_count = args.grad_y.dims[0], n_count = args.grad_y.dims[1];
  const std::int64_t rank = args.a.dims[0], k_count = args.a.dims[1];
  const auto scale = static_cast<double>(args.scale);
  for (std::int64_t m = 0; m < m_count; ++m) {
    for (std::int64_t r = 0; r < rank; ++r) {
      double sum = 0;
      for (std::int64_t n = 0; n < n_count; ++n) {
        sum +=
            operand(load(args.grad_y, m * n_count + n), args.compute) * load(args.b, n * rank + r);
      }
      store(args.grad_u, m * rank + r, scale * sum);
    }
  }
  for (std::int64_t r = 0; r < rank; ++r) {
    for (std::int64_t k = 0; k < k_count; ++k) {
      double sum = 0;
      for (std::int64_t m = 0; m < m_count; ++m) {
        sum += load(args.grad_u, m * rank + r) * dropped(args.x, m, k, args.dropout, args.compute);
      }
      store(args.grad_a, r * k_count + k, sum, args.mode);
    }
  }
  for (std::int64_t n = 0; n < n_count; ++n) {
    for (std::int64_t r = 0; r < rank; ++r) {
      double sum = 0;
      for (std::int64_t m = 0; m < m_count; ++m) {
        sum +=
            operand(load(args.grad_y, m * n_count + n), args.compute) * load(args.u, m * rank + r);
      }
      store(args.grad_b, n * rank + r, scale * sum, args.mode);
    }
  }
}

}  // namespace

void add_linear(OpTable& table) {
  table.linear_nf4_forward.push_back({"reference", check, nullptr, linear_nf4_forward});
  table.linear_nf4_backward.push_back({"reference", check, nullptr, linear_nf4_backward});
  table.lora_backward.push_back({"reference", check, nullptr, lora_backward});
}

}  // namespace reprise::reference
