// dequant: W is decoded into scratch in the compute type, at the speed of a copy, then the library
// multiplies. cached: the library multiplies with a copy that was decoded once. The LoRA term is
// two narrow library products; its FP32 sum enters the large product before that is rounded, so
// that a result is rounded once, as in the fused kernels.
#include "kernels/cpu/onednn_linear.h"

#include <algorithm>

#include "kernels/cpu/onednn_gemm.h"
#include "kernels/cpu/onednn_operands.h"
#include "kernels/cpu/operand_kernels.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::cpu {
namespace {

// All products of one forward call and the scratch between them.
struct ForwardPlan {
  ScratchPieces pieces;
  FrozenWeight weight;
  Converted x, a, b, u;
  View dropped;  // dropout(x)
  LibraryGemm make_u, make_term, make_y;
  bool has_lora;

  ForwardPlan(const LinearNf4ForwardArgs& args, LinearMode mode)
      : pieces(args.scratch.data),
        weight(args.weight, args.cached_weight, mode, activation_dtype(args.compute), pieces),
        x(args.x, activation_dtype(args.compute), pieces),
        a(args.lora.a, activation_dtype(args.compute), pieces),
        b(args.lora.b, activation_dtype(args.compute), pieces),
        u(args.lora.u, activation_dtype(args.compute), pieces),
        has_lora(args.lora.a.present()) {
    make_y = {.a = x.view(),
              .b = weight.view(),
              .transpose_b = Transpose::kYes,
              .bias = args.bias,
              .addend = {},
              .c = args.y,
              .mode = args.mode};
    if (!has_lora) return;
    const std::int64_t m = args.x.dims[0];
    if (args.lora.dropout.probability > 0) {
      dropped = pieces.take(activation_dtype(args.compute), m, args.weight.k);
    }
    make_u = {.a = dropped.present() ? ConstView(dropped) : x.view(),
              .b = a.view(),
              .transpose_b = Transpose::kYes,
              .bias = {},
              .addend = {},
              .c = args.lora.u};
    make_term = {.a = u.view(),
                 .b = b.view(),
                 .transpose_b = Transpose::kYes,
                 .scale = args.lora.scale,
                 .bias = {},
                 .addend = {},
                 .c = args.y,
                 .mode = args.mode};
    if (args.y.dtype == DType::kF32) {
      make_y.mode = OutputMode::kAccumulate;  // onto the LoRA term, which y holds by then
    } else {
      make_term.c = pieces.take(DType::kF32, m, args.weight.n);
      make_term.mode = OutputMode::kOverwrite;
      make_y.addend = make_term.c;
    }
  }
};

struct BackwardPlan {
  ScratchPieces pieces;
  FrozenWeight weight;
  Converted grad_y, a, grad_u;
  LibraryGemm make_term, make_grad_x;
  bool has_lora;
  bool has_dropout;

  BackwardPlan(const LinearNf4BackwardArgs& args, LinearMode mode)
      : pieces(args.scratch.data),
        weight(args.weight, args.cached_weight, mode, activation_dtype(args.compute), pieces),
        grad_y(args.grad_y, activation_dtype(args.compute), pieces),
        a(args.lora.a, activation_dtype(args.compute), pieces),
        grad_u(args.lora.grad_u, activation_dtype(args.compute), pieces),
        has_lora(args.lora.a.present()),
        has_dropout(has_lora && args.lora.dropout.probability > 0) {
    make_grad_x = {.a = grad_y.view(),
                   .b = weight.view(),
                   .bias = {},
                   .addend = {},
                   .c = args.grad_x,
                   .mode = args.mode};
    if (!has_lora) return;
    make_term = {.a = grad_u.view(),
                 .b = a.view(),
                 .bias = {},
                 .addend = {},
                 .c = args.grad_x,
                 .mode = args.mode};
    if (args.grad_x.dtype == DType::kF32 && !has_dropout) {
      make_grad_x.mode = OutputMode::kAccumulate;
    } else {  // the mask must not reach what grad_x holds, nor a bf16 rounding come before the sum
      make_term.c = pieces.take(DType::kF32, args.grad_y.dims[0], args.weight.k);
      make_term.mode = OutputMode::kOverwrite;
      make_grad_x.addend = make_term.c;
    }
  }
};

template <LinearMode kMode, class Args>
Support supports_weight(const Args& args) {
  const Support contract = check(args);
  if (!contract.ok()) return contract;
  if (kMode == LinearMode::kCached && !args.cached_weight.present()) {
    return Support::no("there is no cached weight");
  }
  return Support::yes();
}

template <LinearMode kMode>
Support supports_forward(const LinearNf4ForwardArgs& args) {
  const Support weight = supports_weight<kMode>(args);
  return weight.ok() ? library_supports(ForwardPlan(args, kMode).make_y) : weight;
}

template <LinearMode kMode>
Support supports_backward(const LinearNf4BackwardArgs& args) {
  const Support weight = supports_weight<kMode>(args);
  return weight.ok() ? library_supports(BackwardPlan(args, kMode).make_grad_x) : weight;
}

std::int64_t library_bytes(const ForwardPlan& plan, int threads) {
  std::int64_t bytes = library_scratch_bytes(plan.make_y, threads);
  if (plan.has_lora) {
    bytes = std::max({bytes, library_scratch_bytes(plan.make_u, threads),
                      library_scratch_bytes(plan.make_term, threads)});
  }
  return bytes;
}

std::int64_t library_bytes(const BackwardPlan& plan, int threads) {
  std::int64_t bytes = library_scratch_bytes(plan.make_grad_x, threads);
  if (plan.has_lora) bytes = std::max(bytes, library_scratch_bytes(plan.make_term, threads));
  return bytes;
}

template <class Plan, LinearMode kMode, class Args>
std::int64_t scratch_bytes(const Args& args, int threads) {
  Args sized = args;
  sized.scratch = {};
  Plan plan(sized, kMode);
  plan.pieces.rest(library_bytes(plan, threads));
  return plan.pieces.bytes();
}

template <LinearMode kMode, const OperandKernels& kKernels>
void forward(const LinearNf4ForwardArgs& args, const Execution& execution) {
  ThreadPool& pool = *execution.pool;
  const Operands operands(kKernels, pool);
  ForwardPlan plan(args, kMode);
  const Scratch library = plan.pieces.rest(args.scratch.bytes - plan.pieces.bytes());
  plan.weight.fill(operands);
  plan.x.fill(operands);
  if (plan.has_lora) {
    plan.a.fill(operands);
    plan.b.fill(operands);
    if (plan.dropped.present()) operands.drop(args.x, args.lora.dropout, plan.dropped);
    run_library_gemm(plan.make_u, library, pool.threads());
    plan.u.fill(operands);
    run_library_gemm(plan.make_term, library, pool.threads());
  }
  run_library_gemm(plan.make_y, library, pool.threads());
}

template <LinearMode kMode, const OperandKernels& kKernels>
void backward(const LinearNf4BackwardArgs& args, const Execution& execution) {
  ThreadPool& pool = *execution.pool;
  const Operands operands(kKernels, pool);
  BackwardPlan plan(args, kMode);
  const Scratch library = plan.pieces.rest(args.scratch.bytes - plan.pieces.bytes());
  plan.weight.fill(operands);
  plan.grad_y.fill(operands);
  if (plan.has_lora) {
    plan.a.fill(operands);
    plan.grad_u.fill(operands);
    run_library_gemm(plan.make_term, library, pool.threads());
    if (plan.has_dropout) operands.drop(plan.make_term.c, args.lora.dropout, plan.make_term.c);
  }
  run_library_gemm(plan.make_grad_x, library, pool.threads());
}

template <LinearMode kMode, const OperandKernels& kKernels>
void append(const char* name, OpTable& table) {
  table.linear_nf4_forward.push_back(
      {.name = name,
       .supports = supports_forward<kMode>,
       .scratch_bytes = scratch_bytes<ForwardPlan, kMode, LinearNf4ForwardArgs>,
       .run = forward<kMode, kKernels>});
  table.linear_nf4_backward.push_back(
      {.name = name,
       .supports = supports_backward<kMode>,
       .scratch_bytes = scratch_bytes<BackwardPlan, kMode, LinearNf4BackwardArgs>,
       .run = backward<kMode, kKernels>});
}

template <const OperandKernels& kKernels>
void append_mode(LinearMode mode, OpTable& table) {
  if (mode == LinearMode::kCached) {
    append<LinearMode::kCached, kKernels>("cpu.onednn.cached", table);
  } else {
    append<LinearMode::kDequant, kKernels>("cpu.onednn.dequant", table);
  }
}

}  // namespace

void append_onednn_linear(LinearMode mode, Isa isa, OpTable& table) {
  switch (isa) {
#ifdef REPRISE_X86_64
    case Isa::kAmx:
      return append_mode<amx::kOperandKernels>(mode, table);
    case Isa::kAvx512Bf16:
      return append_mode<avx512_bf16::kOperandKernels>(mode, table);
    case Isa::kAvx512:
      return append_mode<avx512::kOperandKernels>(mode, table);
    case Isa::kAvx2:
      return append_mode<avx2::kOperandKernels>(mode, table);
#endif
    default:
      return append_mode<generic::kOperandKernels>(mode, table);
  }
}

}  // namespace reprise::cpu
