// What the checks of norms, element-wise ops, the loss and the update refuse.
#include <limits>

#include "reprise/kernels/ops/adamw.h"
#include "reprise/kernels/ops/cross_entropy.h"
#include "reprise/kernels/ops/embedding.h"
#include "reprise/kernels/ops/grad_norm.h"
#include "reprise/kernels/ops/residual.h"
#include "reprise/kernels/ops/rms_norm.h"
#include "reprise/kernels/ops/rope.h"
#include "reprise/kernels/ops/swiglu.h"
#include "tests/kernels/contract_case.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kM = 6, kC = 10;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr DType kFloats[] = {DType::kF32, DType::kBF16};

BOOST_AUTO_TEST_SUITE(contracts)

BOOST_AUTO_TEST_CASE(embedding_forward) {
  using A = EmbeddingForwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    check_contract<A>({.legal = {.ids = memory.take(DType::kI32, {kM}),
                                 .table = memory.take(dtype, {7, kC}),
                                 .y = memory.f32({kM, kC})},
                       .operands = {read<A>("ids", &A::ids), read<A>("table", &A::table).leading(),
                                    written<A>("y", &A::y).leading()},
                       .in_place = {},
                       .violations = {{"ids must ",
                                       [](A& a) {
                                         a.y.dims = {kM + 1, kC};
                                       }},
                                      {"table must ",
                                       [](A& a) {
                                         a.y.dims = {kM, kC + 1};
                                       }},
                                      {"table must ",
                                       [](A& a) {
                                         a.table.dims = {0, kC};
                                       }},
                                      {"y must ",
                                       [](A& a) {
                                         a.y.dims = {0, kC};
                                       }},
                                      {"y must ", [](A& a) { a.y.dtype = DType::kBF16; }}}});
  }
}

BOOST_AUTO_TEST_CASE(rms_norm_forward) {
  using A = RmsNormForwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    check_contract<A>({.legal = {.x = memory.f32({kM, kC}),
                                 .weight = memory.f32({kC}),
                                 .eps = 0,
                                 .y = memory.take(dtype, {kM, kC}),
                                 .inv_rms = memory.f32({kM})},
                       .operands = {read<A>("x", &A::x).leading(), read<A>("weight", &A::weight),
                                    written<A>("y", &A::y), written<A>("inv_rms", &A::inv_rms)},
                       .in_place = {},
                       .violations = {{"eps ", [](A& a) { a.eps = -1e-6f; }},
                                      {"eps ", [](A& a) { a.eps = kNaN; }},
                                      {"x must ", [](A& a) { a.x.dtype = DType::kBF16; }},
                                      {"weight must ", [](A& a) { a.weight.dtype = DType::kBF16; }},
                                      {"weight must ",
                                       [](A& a) {
                                         a.x.dims = {kM, kC + 1};
                                       }},
                                      {"y must ", [](A& a) {
                                         a.x.dims = {kM + 1, kC};
                                       }}}});
  }
}

BOOST_AUTO_TEST_CASE(rms_norm_backward) {
  using A = RmsNormBackwardArgs;
  OperandMemory memory;
  for (const OutputMode mode : {OutputMode::kOverwrite, OutputMode::kAccumulate}) {
    check_contract<A>({.legal = {.grad_y = memory.f32({kM, kC}),
                                 .x = memory.f32({kM, kC}),
                                 .weight = memory.f32({kC}),
                                 .inv_rms = memory.f32({kM}),
                                 .grad_x = memory.f32({kM, kC}),
                                 .mode = mode},
                       .operands = {read<A>("grad_y", &A::grad_y), read<A>("x", &A::x).leading(),
                                    read<A>("weight", &A::weight), read<A>("inv_rms", &A::inv_rms),
                                    written<A>("grad_x", &A::grad_x)},
                       .in_place = {},
                       .violations = {{"grad_y must ", [](A& a) { a.grad_y.dtype = DType::kBF16; }},
                                      {"grad_x must ", [](A& a) { a.grad_x.dtype = DType::kBF16; }},
                                      {"grad_y must ", [](A& a) {
                                         a.x.dims = {kM + 1, kC};
                                       }}}});
  }
}

BOOST_AUTO_TEST_CASE(rope) {
  using A = RopeArgs;
  constexpr std::int64_t kSeq = 3, kHalf = 4, kHeads = 2;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    check_contract<A>({.legal = {.x = memory.take(dtype, {kM, kHeads * 2 * kHalf}),
                                 .table = memory.f32({kSeq, kHalf, 2}),
                                 .heads = kHeads,
                                 .direction = RopeDirection::kInverse,
                                 .y = memory.take(dtype, {kM, kHeads * 2 * kHalf})},
                       .operands = {read<A>("x", &A::x).leading(),
                                    read<A>("table", &A::table).leading(), written<A>("y", &A::y)},
                       .in_place = {{"y", "x"}},
                       .violations = {{"heads must ", [](A& a) { a.heads = 0; }},
                                      {"x must ", [](A& a) { a.heads = kHeads + 1; }},
                                      {"x must ",
                                       [](A& a) {
                                         a.x.dims = {kM, kHeads * 2 * kHalf + 1};
                                       }},
                                      {"x must ",
                                       [](A& a) {
                                         a.table.dims = {kSeq, kHalf + 1, 2};
                                       }},
                                      {"table must ",
                                       [](A& a) {
                                         a.table.dims = {kSeq, kHalf, 3};
                                       }},
                                      {"table must ",
                                       [](A& a) {
                                         a.table.dims = {0, kHalf, 2};
                                       }},
                                      {"table must ",
                                       [](A& a) {
                                         a.table.dims = {kSeq, 0, 2};
                                       }},
                                      {"table must ", [](A& a) { a.table.dtype = DType::kBF16; }},
                                      {"rows of x ",
                                       [](A& a) {
                                         a.table.dims = {kSeq + 1, kHalf, 2};
                                       }},
                                      {"y must ", [dtype](A& a) {
                                         a.y.dtype =
                                             dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
                                       }}}});
  }
}

BOOST_AUTO_TEST_CASE(swiglu_forward) {
  using A = SwigluForwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    check_contract<A>({.legal = {.gate = memory.take(dtype, {kM, kC}),
                                 .up = memory.take(dtype, {kM, kC}),
                                 .y = memory.take(dtype, {kM, kC})},
                       .operands = {read<A>("gate", &A::gate).leading(), read<A>("up", &A::up),
                                    written<A>("y", &A::y)},
                       .in_place = {},
                       .violations = {{"gate must ",
                                       [](A& a) {
                                         a.gate.dims = {kM, 0};
                                       }},
                                      {"up must ",
                                       [](A& a) {
                                         a.gate.dims = {kM, kC + 1};
                                       }},
                                      {"up must ", [](A& a) { a.up.dtype = DType::kF16; }}}});
  }
}

BOOST_AUTO_TEST_CASE(swiglu_backward) {
  using A = SwigluBackwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    check_contract<A>(
        {.legal = {.grad_y = memory.take(dtype, {kM, kC}),
                   .gate = memory.take(dtype, {kM, kC}),
                   .up = memory.take(dtype, {kM, kC}),
                   .grad_gate = memory.take(dtype, {kM, kC}),
                   .grad_up = memory.take(dtype, {kM, kC})},
         .operands = {read<A>("grad_y", &A::grad_y), read<A>("gate", &A::gate).leading(),
                      read<A>("up", &A::up), written<A>("grad_gate", &A::grad_gate),
                      written<A>("grad_up", &A::grad_up)},
         .in_place = {{"grad_gate", "gate"}, {"grad_up", "up"}},
         .violations = {{"grad_up must ", [](A& a) { a.grad_up.dtype = DType::kF16; }}}});
  }
}

BOOST_AUTO_TEST_CASE(residual_and_fill) {
  using A = ResidualArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    check_contract<A>(
        {.legal = {.a = memory.f32({kM, kC}),
                   .b = memory.take(dtype, {kM, kC}),
                   .y = memory.f32({kM, kC})},
         .operands = {read<A>("a", &A::a).leading(), read<A>("b", &A::b), written<A>("y", &A::y)},
         .in_place = {{"y", "a"}},
         .violations = {{"a must ",
                         [](A& a) {
                           a.a.dims = {0, kC};
                         }},
                        {"a must ", [](A& a) { a.a.dtype = DType::kBF16; }},
                        {"y must ", [](A& a) { a.y.dtype = DType::kBF16; }}}});
  }
  using F = FillArgs;
  OperandMemory memory;
  check_contract<F>({.legal = {.x = memory.f32({kM, kC})},
                     .operands = {},
                     .in_place = {},
                     .violations = {{"x must ", [](F& f) { f.x = {}; }},
                                    {"x must ",
                                     [](F& f) {
                                       f.x.dims = {kM, 0};
                                     }},
                                    {"x must ", [](F& f) { f.x.dtype = DType::kI32; }}}});
}

BOOST_AUTO_TEST_CASE(cross_entropy) {
  using A = CrossEntropyArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    static StepParams params;
    const View scratch = memory.take(DType::kU8, {256});
    check_contract<A>(
        {.legal = {.compute = ComputeType::kBF16,
                   .x = memory.take(dtype, {kM, kC}),
                   .weight = memory.take(dtype, {7, kC}),
                   .labels = memory.take(DType::kI32, {kM}),
                   .params = &params,
                   .loss = memory.f32({2}),
                   .nll = memory.f32({kM}),
                   .grad_x = memory.f32({kM, kC}),
                   .scratch = {scratch.data, scratch.bytes()}},
         .operands = {read<A>("x", &A::x).leading(), read<A>("weight", &A::weight).leading(),
                      read<A>("labels", &A::labels), written<A>("loss", &A::loss).leading(),
                      written<A>("nll", &A::nll).optional(),
                      written<A>("grad_x", &A::grad_x).optional()},
         .in_place = {},
         .violations = {
             {"x must ",
              [](A& a) {
                a.x.dims = {0, kC};
              }},
             {"weight must ",
              [](A& a) {
                a.weight.dims = {0, kC};
              }},
             {"weight must ",
              [](A& a) {
                a.weight.dims = {7, kC + 1};
              }},
             {"labels must ",
              [](A& a) {
                a.x.dims = {kM + 1, kC};
              }},
             {"loss must ", [](A& a) { a.loss.dims = {0}; }},
             {"grad_x must ", [](A& a) { a.grad_x.dtype = DType::kBF16; }},
             {"params and loss overlap", [](A& a) { a.loss.data = &params.loss_scale; }},
             {"x and scratch overlap", [](A& a) { a.scratch.data = const_cast<void*>(a.x.data); }},
             {"grad_x and scratch overlap", [](A& a) { a.scratch.data = a.grad_x.data; }}}});
  }
}

BOOST_AUTO_TEST_CASE(lm_head) {
  using A = LmHeadArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    const View scratch = memory.take(DType::kU8, {256});
    check_contract<A>(
        {.legal = {.x = memory.take(dtype, {kM, kC}),
                   .weight = memory.take(dtype, {7, kC}),
                   .logits = memory.f32({kM, 7}),
                   .scratch = {scratch.data, scratch.bytes()}},
         .operands = {read<A>("x", &A::x).leading(), read<A>("weight", &A::weight).leading(),
                      written<A>("logits", &A::logits)},
         .in_place = {},
         .violations = {
             {"weight must ",
              [](A& a) {
                a.x.dims = {kM, kC + 1};
              }},
             {"logits must ",
              [](A& a) {
                a.weight.dims = {8, kC};
              }},
             {"logits must ", [](A& a) { a.logits.dtype = DType::kBF16; }},
             {"logits and scratch overlap", [](A& a) { a.scratch.data = a.logits.data; }}}});
  }
}

BOOST_AUTO_TEST_CASE(grad_norm_and_clip) {
  using G = GradNormArgs;
  OperandMemory memory;
  const View scratch = memory.take(DType::kU8, {256});
  check_contract<G>(
      {.legal = {.grads = memory.f32({33}),
                 .norm = memory.f32({1}),
                 .scratch = {scratch.data, scratch.bytes()}},
       .operands = {read<G>("grads", &G::grads).leading(), written<G>("norm", &G::norm)},
       .in_place = {},
       .violations = {{"grads must ", [](G& a) { a.grads.dims = {0}; }},
                      {"norm and scratch overlap", [](G& a) { a.scratch.data = a.norm.data; }}}});
  using C = ClipArgs;
  check_contract<C>({.legal = {.norm = memory.f32({1}),
                               .loss = memory.f32({3}),
                               .max_norm = 1,
                               .decision = memory.f32({2})},
                     .operands = {read<C>("norm", &C::norm), read<C>("loss", &C::loss).leading(),
                                  written<C>("decision", &C::decision)},
                     .in_place = {},
                     .violations = {{"loss must ", [](C& a) { a.loss.dims = {0}; }},
                                    {"max_norm ", [](C& a) { a.max_norm = -1; }},
                                    {"max_norm ", [](C& a) { a.max_norm = kNaN; }}}});
}

BOOST_AUTO_TEST_CASE(adamw) {
  using A = AdamWArgs;
  OperandMemory memory;
  static StepParams params;
  check_contract<A>(
      {.legal = {.params = memory.f32({33}),
                 .grads = memory.f32({33}),
                 .exp_avg = memory.f32({33}),
                 .exp_avg_sq = memory.f32({33}),
                 .decision = memory.f32({2}),
                 .step_params = &params},
       .operands = {written<A>("params", &A::params).leading(), read<A>("grads", &A::grads),
                    written<A>("exp_avg", &A::exp_avg), written<A>("exp_avg_sq", &A::exp_avg_sq),
                    read<A>("decision", &A::decision)},
       .in_place = {},
       .violations = {
           {"params must ", [](A& a) { a.params.dims = {0}; }},
           {"grads must ", [](A& a) { a.params.dims = {34}; }},
           {"grads must ", [](A& a) { a.grads.dtype = DType::kBF16; }},
           {"beta1 must ", [](A& a) { a.beta1 = 1; }},
           {"beta1 must ", [](A& a) { a.beta1 = -0.1f; }},
           {"beta1 must ", [](A& a) { a.beta1 = kNaN; }},
           {"beta2 must ", [](A& a) { a.beta2 = 1; }},
           {"beta2 must ", [](A& a) { a.beta2 = kNaN; }},
           {"eps must ", [](A& a) { a.eps = 0; }},
           {"eps must ", [](A& a) { a.eps = kNaN; }},
           {"step_params and params overlap", [](A& a) { a.params.data = &params; }},
           {"step_params and exp_avg overlap", [](A& a) { a.exp_avg.data = &params; }}}});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
