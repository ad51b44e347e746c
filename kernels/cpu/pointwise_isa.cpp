// Embedding, rotary embedding, SwiGLU, residual, fill: one pass over memory each.
#include "kernels/cpu/exp_isa.h"
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/row_access_isa.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Elements that are worth a worker of their own; a multiple of every vector's width.
constexpr std::int64_t kGrain = 4096;

void embedding(const EmbeddingForwardArgs& args, const Execution& execution) {
  const std::int64_t columns = args.y.dims[1];
  const auto* const ids = args.ids.as<std::int32_t>();
  with_elements(args.table, [&](const auto* table) {
    execution.pool->parallel_ranges(
        args.y.dims[0], 8, [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t m = begin; m < end; ++m) {
            const auto* const row = table + std::int64_t{ids[m]} * columns;
            float* const y = args.y.as<float>() + m * columns;
            for_lanes(0, columns, [&](std::int64_t c, std::int64_t count) {
              write(read(row + c, count), y + c, count);
            });
          }
        });
  });
}

// One head of one row; `angles` holds cos and sin of each pair.
template <class T>
void rotate(const T* x, const float* angles, std::int64_t half, float turn, T* y) {
  for_lanes(0, half, [&](std::int64_t d, std::int64_t count) {
    Floats cos{}, sin{};
    for (std::int64_t lane = 0; lane < count; ++lane) {
      cos[lane] = angles[2 * (d + lane)];
      sin[lane] = turn * angles[2 * (d + lane) + 1];
    }
    const Floats a = read(x + d, count), b = read(x + half + d, count);
    write(a * cos - b * sin, y + d, count);
    write(b * cos + a * sin, y + half + d, count);
  });
}

void rope(const RopeArgs& args, const Execution& execution) {
  const std::int64_t rows = args.x.dims[0], width = args.x.dims[1];
  const std::int64_t seq = args.table.dims[0], half = args.table.dims[1];
  const float turn = args.direction == RopeDirection::kForward ? 1.0f : -1.0f;
  const auto rotate_all = [&](const auto* x, auto* y) {
    execution.pool->parallel_ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t m = begin; m < end; ++m) {
        const float* const angles = args.table.as<float>() + m % seq * half * 2;
        for (std::int64_t h = 0; h < args.heads; ++h) {
          const std::int64_t at = m * width + h * 2 * half;
          rotate(x + at, angles, half, turn, y + at);
        }
      }
    });
  };
  if (args.x.dtype == DType::kBF16) {
    rotate_all(args.x.as<BFloat16>(), args.y.as<BFloat16>());
  } else {
    rotate_all(args.x.as<float>(), args.y.as<float>());
  }
}

void swiglu_forward(const SwigluForwardArgs& args, const Execution& execution) {
  const auto product = [&](const auto* gate, const auto* up, auto* y) {
    execution.pool->parallel_ranges(
        args.y.count(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
          for_lanes(begin, end, [&](std::int64_t i, std::int64_t count) {
            const Floats g = read(gate + i, count);
            write(g * sigmoid(g) * read(up + i, count), y + i, count);
          });
        });
  };
  if (args.y.dtype == DType::kBF16) {
    product(args.gate.as<BFloat16>(), args.up.as<BFloat16>(), args.y.as<BFloat16>());
  } else {
    product(args.gate.as<float>(), args.up.as<float>(), args.y.as<float>());
  }
}

template <class T>
void swiglu_gradients(const SwigluBackwardArgs& args, ThreadPool& pool) {
  const T* const grad_y = args.grad_y.as<T>();
  const T* const gate = args.gate.as<T>();
  const T* const up = args.up.as<T>();
  T* const grad_gate = args.grad_gate.as<T>();
  T* const grad_up = args.grad_up.as<T>();
  pool.parallel_ranges(args.grad_y.count(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for_lanes(begin, end, [&](std::int64_t i, std::int64_t count) {
      const Floats grad = read(grad_y + i, count), g = read(gate + i, count);
      const Floats u = read(up + i, count), s = sigmoid(g);
      write(grad * g * s, grad_up + i, count);
      write(grad * u * s * (1.0f + g * (1.0f - s)), grad_gate + i, count);
    });
  });
}

void swiglu_backward(const SwigluBackwardArgs& args, const Execution& execution) {
  if (args.gate.dtype == DType::kBF16) {
    swiglu_gradients<BFloat16>(args, *execution.pool);
  } else {
    swiglu_gradients<float>(args, *execution.pool);
  }
}

void residual(const ResidualArgs& args, const Execution& execution) {
  const float* const a = args.a.as<float>();
  float* const y = args.y.as<float>();
  with_elements(args.b, [&](const auto* b) {
    execution.pool->parallel_ranges(
        args.y.count(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
          for_lanes(begin, end, [&](std::int64_t i, std::int64_t count) {
            write(read(a + i, count) + read(b + i, count), y + i, count);
          });
        });
  });
}

void fill(const FillArgs& args, const Execution& execution) {
  float* const x = args.x.as<float>();
  execution.pool->parallel_ranges(args.x.count(), kGrain,
                                  [&](std::int64_t begin, std::int64_t end, int) {
                                    for (std::int64_t i = begin; i < end; ++i) x[i] = args.value;
                                  });
}

}  // namespace

void append_pointwise(OpTable& table) {
  table.embedding_forward.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, embedding});
  table.rope.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, rope});
  table.swiglu_forward.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, swiglu_forward});
  table.swiglu_backward.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, swiglu_backward});
  table.residual.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, residual});
  table.fill.push_back({"cpu." REPRISE_ISA_NAME, check, nullptr, fill});
}

}  // namespace reprise::cpu::REPRISE_ISA
