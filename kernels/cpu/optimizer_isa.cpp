// Gradient norm, clip and AdamW over the flat buffers.
#include <cmath>

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/row_access_isa.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Elements of one partial sum of the norm: cuts that do not depend on the number of threads.
constexpr std::int64_t kChunk = 1 << 14;
constexpr std::int64_t kGrain = 4096;

std::int64_t chunks_of(const GradNormArgs& args) {
  return (args.grads.count() + kChunk - 1) / kChunk;
}

std::int64_t grad_norm_scratch(const GradNormArgs& args, int) {
  return chunks_of(args) * static_cast<std::int64_t>(sizeof(double));
}

void grad_norm(const GradNormArgs& args, const Execution& execution) {
  const float* const grads = args.grads.as<float>();
  const std::int64_t count = args.grads.count(), chunks = chunks_of(args);
  auto* const partial = static_cast<double*>(args.scratch.data);
  execution.pool->parallel_dynamic(chunks, [&](std::int64_t chunk, int) {
    const std::int64_t begin = chunk * kChunk;
    const std::int64_t end = begin + kChunk < count ? begin + kChunk : count;
    // Eight sums side by side, which the compiler keeps in vectors.
    double sums[8] = {};
    std::int64_t i = begin;
    for (; i + 8 <= end; i += 8) {
      for (int lane = 0; lane < 8; ++lane) {
        const auto value = static_cast<double>(grads[i + lane]);
        sums[lane] += value * value;
      }
    }
    for (; i < end; ++i) {
      const auto value = static_cast<double>(grads[i]);
      sums[0] += value * value;
    }
    double sum = 0;
    for (const double part : sums) sum += part;
    partial[chunk] = sum;
  });
  double sum = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk];
  *args.norm.as<float>() = static_cast<float>(__builtin_sqrt(sum));
}

bool is_finite(float value) { return __builtin_isfinite(value); }

void clip(const ClipArgs& args, const Execution&) {
  const float norm = *args.norm.as<float>();
  bool finite = is_finite(norm);
  for (std::int64_t i = 0; i < args.loss.count(); ++i) {
    finite = finite && is_finite(args.loss.as<float>()[i]);
  }
  const double limit = static_cast<double>(args.max_norm) / (static_cast<double>(norm) + 1e-6);
  float* const decision = args.decision.as<float>();
  decision[0] = args.max_norm > 0 && limit < 1 ? static_cast<float>(limit) : 1.0f;
  decision[1] = finite ? 1.0f : 0.0f;
}

Floats square_root(Floats values) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(values);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(values);
#else
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = __builtin_sqrtf(values[lane]);
  return values;
#endif
}

void adamw(const AdamWArgs& args, const Execution& execution) {
  const float* const decision = args.decision.as<float>();
  if (decision[1] == 0) return;
  const float coefficient = decision[0];
  const auto lr = static_cast<double>(args.step_params->learning_rate);
  const auto step = static_cast<double>(args.step_params->step);
  const auto beta1 = static_cast<double>(args.beta1), beta2 = static_cast<double>(args.beta2);
  const auto step_size = static_cast<float>(lr / (1 - std::pow(beta1, step)));
  const auto root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, step)));
  const auto decay = static_cast<float>(1 - lr * static_cast<double>(args.weight_decay));
  const auto fresh1 = static_cast<float>(1 - beta1), fresh2 = static_cast<float>(1 - beta2);
  float* const params = args.params.as<float>();
  float* const exp_avg = args.exp_avg.as<float>();
  float* const exp_avg_sq = args.exp_avg_sq.as<float>();
  const float* const grads = args.grads.as<float>();
  execution.pool->parallel_ranges(
      args.params.count(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
        for_lanes(begin, end, [&](std::int64_t i, std::int64_t count) {
          const Floats g = read(grads + i, count) * coefficient;
          const Floats m = read(exp_avg + i, count) * args.beta1 + g * fresh1;
          const Floats v = read(exp_avg_sq + i, count) * args.beta2 + g * g * fresh2;
          write(m, exp_avg + i, count);
          write(v, exp_avg_sq + i, count);
          const Floats denominator = square_root(v) * root_correction + args.eps;
          write(read(params + i, count) * decay - step_size * m / denominator, params + i, count);
        });
      });
}

}  // namespace

void append_optimizer(OpTable& table) {
  table.grad_norm.push_back({"cpu." REPRISE_ISA_NAME, check, grad_norm_scratch, grad_norm});
  table.clip.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, clip});
  table.adamw.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, adamw});
}

}  // namespace reprise::cpu::REPRISE_ISA
