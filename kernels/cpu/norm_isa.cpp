// RMS normalisation, a row at a time. A row's sums run over lanes first and over the lanes of the
// result last, the same way for any number of threads.
#include "kernels/cpu/exp_isa.h"
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/row_access_isa.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Rows of this many elements in all are worth a worker of their own.
constexpr std::int64_t kGrainElements = 8192;

std::int64_t row_grain(std::int64_t columns) {
  const std::int64_t rows = kGrainElements / columns;
  return rows > 1 ? rows : 1;
}

void forward(const RmsNormForwardArgs& args, const Execution& execution) {
  const std::int64_t rows = args.x.dims[0], columns = args.x.dims[1];
  const auto* const weight = args.weight.as<float>();
  with_elements(args.y, [&](auto* y) {
    execution.pool->parallel_ranges(
        rows, row_grain(columns), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t m = begin; m < end; ++m) {
            const float* const x = args.x.as<float>() + m * columns;
            Floats squares{};
            for_lanes(0, columns, [&](std::int64_t c, std::int64_t count) {
              const Floats value = read(x + c, count);
              squares = multiply_add(value, value, squares);
            });
            const float mean = sum_of(squares) / static_cast<float>(columns);
            const float inv_rms = 1.0f / __builtin_sqrtf(mean + args.eps);
            args.inv_rms.as<float>()[m] = inv_rms;
            for_lanes(0, columns, [&](std::int64_t c, std::int64_t count) {
              write(read(x + c, count) * inv_rms * read(weight + c, count), y + m * columns + c,
                    count);
            });
          }
        });
  });
}

void backward(const RmsNormBackwardArgs& args, const Execution& execution) {
  const std::int64_t rows = args.x.dims[0], columns = args.x.dims[1];
  const auto* const weight = args.weight.as<float>();
  execution.pool->parallel_ranges(
      rows, row_grain(columns), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t m = begin; m < end; ++m) {
          const float* const x = args.x.as<float>() + m * columns;
          const float* const grad_y = args.grad_y.as<float>() + m * columns;
          float* const grad_x = args.grad_x.as<float>() + m * columns;
          const float inv_rms = args.inv_rms.as<float>()[m];
          Floats dots{};
          for_lanes(0, columns, [&](std::int64_t c, std::int64_t count) {
            const Floats g = read(grad_y + c, count) * read(weight + c, count);
            dots = multiply_add(g, read(x + c, count), dots);
          });
          const float mean = sum_of(dots) / static_cast<float>(columns);
          const float pull = mean * inv_rms * inv_rms;
          for_lanes(0, columns, [&](std::int64_t c, std::int64_t count) {
            const Floats g = read(grad_y + c, count) * read(weight + c, count);
            Floats grad = (g - read(x + c, count) * pull) * inv_rms;
            if (args.mode == OutputMode::kAccumulate) grad += read(grad_x + c, count);
            write(grad, grad_x + c, count);
          });
        }
      });
}

}  // namespace

void append_norm(OpTable& table) {
  table.rms_norm_forward.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, forward});
  table.rms_norm_backward.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, backward});
}

}  // namespace reprise::cpu::REPRISE_ISA
