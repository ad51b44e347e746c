// The vocabulary head and cross entropy by their formulas, a row of logits at a time.
#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/tables.h"

namespace reprise::reference {
namespace {

double logit(const ConstView& x, const ConstView& weight, std::int64_t m, std::int64_t v,
             ComputeType compute) {
  const std::int64_t c_count = x.dims[1];
  double sum = 0;
  for (std::int64_t c = 0; c < c_count; ++c) {
    sum += operand(load(x, m * c_count + c), compute) *
           operand(load(weight, v * c_count + c), compute);
  }
  return sum;
}

// The logits of one row, in scratch.
double* logits_row(const CrossEntropyArgs& args, std::int64_t m) {
  auto* logits = static_cast<double*>(args.scratch.data);
  for (std::int64_t v = 0; v < args.weight.dims[0]; ++v) {
    logits[v] = logit(args.x, args.weight, m, v, args.compute);
  }
  return logits;
}

double log_sum_exp(const double* logits, std::int64_t count) {
  const double largest = *std::max_element(logits, logits + count);
  double sum = 0;
  for (std::int64_t v = 0; v < count; ++v) sum += std::exp(logits[v] - largest);
  return largest + std::log(sum);
}

void grad_row(const CrossEntropyArgs& args, std::int64_t m, const double* logits, double lse) {
  const std::int64_t c_count = args.x.dims[1], v_count = args.weight.dims[0];
  const std::int64_t label = args.labels.as<std::int32_t>()[m];
  const auto scale = static_cast<double>(args.params->loss_scale);
  for (std::int64_t c = 0; c < c_count; ++c) {
    double sum = 0;
    for (std::int64_t v = 0; v < v_count; ++v) {
      const double p = std::exp(logits[v] - lse);
      sum += (p - (v == label ? 1 : 0)) * operand(load(args.weight, v * c_count + c), args.compute);
    }
    store(args.grad_x, m * c_count + c, scale * sum);
  }
}

std::int64_t cross_entropy_scratch(const CrossEntropyArgs& args, int) {
  return args.weight.dims[0] * static_cast<std::int64_t>(sizeof(double));
}

void cross_entropy(const CrossEntropyArgs& args, const Execution&) {
  const auto scale = static_cast<double>(args.params->loss_scale);
  const std::int64_t c_count = args.x.dims[1];
  double loss = 0;
  for (std::int64_t m = 0; m < args.x.dims[0]; ++m) {
    const std::int64_t label = args.labels.as<std::int32_t>()[m];
    const bool masked = label == kIgnoredLabel;
    double nll = 0;
    if (!masked) {
      const double* logits = logits_row(args, m);
      const double lse = log_sum_exp(logits, args.weight.dims[0]);
      nll = lse - logits[label];
      if (args.grad_x.present() && scale != 0) grad_row(args, m, logits, lse);
    }
    loss += nll;
    if (args.nll.present()) store(args.nll, m, nll);
    if (!args.grad_x.present() || (!masked && scale != 0)) continue;
    for (std::int64_t c = 0; c < c_count; ++c) store(args.grad_x, m * c_count + c, 0);
  }
  store(args.loss, args.params->micro_step, scale == 0 ? 0 : scale * loss);
}

void lm_head(const LmHeadArgs& args, const Execution&) {
  const std::int64_t v_count = args.weight.dims[0];
  for (std::int64_t m = 0; m < args.x.dims[0]; ++m) {
    for (std::int64_t v = 0; v < v_count; ++v) {
      store(args.logits, m * v_count + v, logit(args.x, args.weight, m, v, args.compute));
    }
  }
}

}  // namespace

void add_loss(OpTable& table) {
  table.cross_entropy.push_back({"reference", check, cross_entropy_scratch, cross_entropy});
  table.lm_head.push_back({"reference", check, nullptr, lm_head});
}

}  // namespace reprise::reference
