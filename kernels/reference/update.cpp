// Gradient norm, clip and AdamW by their formulas, in double precision.
#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/tables.h"

namespace reprise::reference {
namespace {

void grad_norm(const GradNormArgs& args, const Execution&) {
  double squares = 0;
  for (std::int64_t i = 0; i < args.grads.count(); ++i) {
    squares += load(args.grads, i) * load(args.grads, i);
  }
  store(args.norm, 0, std::sqrt(squares));
}

void clip(const ClipArgs& args, const Execution&) {
  const double norm = load(args.norm, 0), max_norm = static_cast<double>(args.max_norm);
  bool finite = std::isfinite(norm);
  for (std::int64_t i = 0; i < args.loss.count(); ++i) {
    finite = finite && std::isfinite(load(args.loss, i));
  }
  store(args.decision, 0, max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0);
  store(args.decision, 1, finite ? 1 : 0);
}

void adamw(const AdamWArgs& args, const Execution&) {
  if (load(args.decision, 1) == 0) return;
  const double coefficient = load(args.decision, 0);
  const auto lr = static_cast<double>(args.step_params->learning_rate);
  const auto step = static_cast<double>(args.step_params->step);
  const auto beta1 = static_cast<double>(args.beta1), beta2 = static_cast<double>(args.beta2);
  const double correction1 = 1 - std::pow(beta1, step);
  const double correction2 = std::sqrt(1 - std::pow(beta2, step));
  for (std::int64_t i = 0; i < args.params.count(); ++i) {
    const double g = coefficient * load(args.grads, i);
    const double m = beta1 * load(args.exp_avg, i) + (1 - beta1) * g;
    const double v = beta2 * load(args.exp_avg_sq, i) + (1 - beta2) * g * g;
    store(args.exp_avg, i, m);
    store(args.exp_avg_sq, i, v);
    const double decayed = load(args.params, i) * (1 - lr * static_cast<double>(args.weight_decay));
    const double denominator = std::sqrt(v) / correction2 + static_cast<double>(args.eps);
    store(args.params, i, decayed - lr / correction1 * m / denominator);
  }
}

}  // namespace

void add_update(OpTable& table) {
  table.grad_norm.push_back({"reference", check, nullptr, grad_norm});
  table.clip.push_back({"reference", check, nullptr, clip});
  table.adamw.push_back({"reference", check, nullptr, adamw});
}

}  // namespace reprise::reference
