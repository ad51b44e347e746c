// What the checks of the frozen linear layer, its adapter and attention refuse.
#include <limits>

#include "reprise/kernels/ops/attention.h"
#include "reprise/kernels/ops/linear_nf4.h"
#include "reprise/kernels/ops/lora.h"
#include "tests/kernels/contract_case.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kM = 6, kN = 5, kK = 26, kR = 3;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr DType kFloats[] = {DType::kF32, DType::kBF16};

// The last `bytes` of an operand, to lay a weight's bytes over them.
const std::uint8_t* tail_of(const View& view, std::int64_t bytes) {
  return static_cast<const std::uint8_t*>(view.data) + view.bytes() - bytes;
}

Nf4View weight_in(OperandMemory& memory) {
  const View packed = memory.take(DType::kU8, {nf4_packed_bytes(kN * kK)});
  const View absmax = memory.f32({nf4_blocks(kN * kK, 64)});
  return {packed.as<std::uint8_t>(), absmax.as<float>(), kN, kK, 64, NibbleOrder::kHighFirst};
}

// What both directions of the linear layer say about the weight.
template <class A>
std::vector<Violation<A>> weight_violations() {
  std::vector<Violation<A>> all = {{"weight must ", [](A& a) { a.weight.n = 0; }},
                                   {"weight must ", [](A& a) { a.weight.k = 0; }},
                                   {"weight must ", [](A& a) { a.weight.k = -1; }}};
  for (const std::int64_t size : {0, 1, 32, 63, 96, 8192, -64}) {
    all.push_back({"block_size must ", [=](A& a) { a.weight.block_size = size; }});
  }
  for (const float p : {-0.1f, 1.0f, 1.5f, kNaN}) {
    all.push_back({"dropout probability must ", [=](A& a) { a.lora.dropout.probability = p; }});
  }
  all.push_back({"lora.a must ", [](A& a) { a.lora.a.dims = {0, kK}; }});
  return all;
}

BOOST_AUTO_TEST_SUITE(contracts)

BOOST_AUTO_TEST_CASE(linear_nf4_forward) {
  using A = LinearNf4ForwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    const View scratch = memory.take(DType::kU8, {256});
    const ComputeType compute = dtype == DType::kF32 ? ComputeType::kF32 : ComputeType::kBF16;
    ContractCase<A> c{.legal = {.compute = compute,
                                .x = memory.take(dtype, {kM, kK}),
                                .weight = weight_in(memory),
                                .cached_weight = memory.take(dtype, {kN, kK}),
                                .bias = memory.f32({kN}),
                                .lora = {.a = memory.f32({kR, kK}),
                                         .b = memory.f32({kN, kR}),
                                         .u = memory.f32({kM, kR}),
                                         .scale = 2,
                                         .dropout = {.probability = 0.5f}},
                                .y = memory.take(dtype, {kM, kN}),
                                .mode = OutputMode::kAccumulate,
                                .scratch = {scratch.data, scratch.bytes()}},
                      .operands = {read<A>("x", &A::x).leading(),
                                   read<A>("cached_weight", &A::cached_weight).optional(),
                                   read<A>("bias", &A::bias).optional(),
                                   read<A>(
                                       "lora.a", [](auto& a) -> auto& { return a.lora.a; })
                                       .optional()
                                       .leading(),
                                   read<A>(
                                       "lora.b", [](auto& a) -> auto& { return a.lora.b; }),
                                   written<A>(
                                       "lora.u", [](auto& a) -> auto& { return a.lora.u; }),
                                   written<A>("y", &A::y)},
                      .in_place = {},
                      .violations = weight_violations<A>()};
    c.violations.insert(
        c.violations.end(),
        {{"x must ",
          [](A& a) {
            a.x.dims = {0, kK};
          }},
         {"x must ",
          [](A& a) {
            a.x.dims = {kM, kK + 1};
          }},
         {"y must ",
          [](A& a) {
            a.x.dims = {kM + 1, kK};
          }},
         {"lora.a must ",
          [](A& a) {
            a.lora.a.dims = {kR, kK + 1};
          }},
         {"lora.b must ",
          [](A& a) {
            a.lora.a.dims = {kR + 1, kK};
          }},
         {"lora.u must ", [](A& a) { a.lora.u.dtype = DType::kBF16; }},
         {"bias must ", [](A& a) { a.bias.dtype = DType::kBF16; }},
         {"cached_weight must ",
          [=](A& a) { a.cached_weight.dtype = dtype == DType::kF32 ? DType::kBF16 : DType::kF32; }},
         {"weight.packed and y overlap", [](A& a) { a.weight.packed = tail_of(a.y, 1); }},
         {"weight.absmax and y overlap",
          [](A& a) { a.weight.absmax = static_cast<const float*>(a.y.data); }},
         {"weight.packed and lora.u overlap", [](A& a) { a.weight.packed = tail_of(a.lora.u, 1); }},
         {"weight.packed and scratch overlap",
          [](A& a) { a.scratch.data = const_cast<std::uint8_t*>(a.weight.packed); }},
         {"y and scratch overlap", [](A& a) { a.scratch.data = a.y.data; }},
         {"lora.u and scratch overlap", [](A& a) { a.scratch.data = a.lora.u.data; }}});
    check_contract(c);
    // Operands that are only read may share memory, and addresses may be missing before planning.
    A same = c.legal;
    same.lora.a.data = same.x.data;
    check_legal(same, "two inputs in one memory");
    A planned = c.legal;
    planned.y.data = planned.lora.u.data = nullptr;
    planned.x.data = nullptr;
    check_legal(planned, "no addresses yet");
  }
}

BOOST_AUTO_TEST_CASE(linear_nf4_backward) {
  using A = LinearNf4BackwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    const View scratch = memory.take(DType::kU8, {256});
    const ComputeType compute = dtype == DType::kF32 ? ComputeType::kF32 : ComputeType::kBF16;
    ContractCase<A> c{
        .legal = {.compute = compute,
                  .grad_y = memory.take(dtype, {kM, kN}),
                  .weight = weight_in(memory),
                  .cached_weight = memory.take(dtype, {kN, kK}),
                  .lora = {.a = memory.f32({kR, kK}),
                           .grad_u = memory.f32({kM, kR}),
                           .dropout = {.probability = 0.5f}},
                  .grad_x = memory.take(dtype, {kM, kK}),
                  .mode = OutputMode::kAccumulate,
                  .scratch = {scratch.data, scratch.bytes()}},
        .operands = {read<A>("grad_y", &A::grad_y).leading(),
                     read<A>("cached_weight", &A::cached_weight).optional(),
                     read<A>(
                         "lora.a", [](auto& a) -> auto& { return a.lora.a; })
                         .optional()
                         .leading(),
                     read<A>(
                         "lora.grad_u", [](auto& a) -> auto& { return a.lora.grad_u; }),
                     written<A>("grad_x", &A::grad_x)},
        .in_place = {},
        .violations = weight_violations<A>()};
    c.violations.insert(
        c.violations.end(),
        {{"grad_y must ",
          [](A& a) {
            a.grad_y.dims = {0, kN};
          }},
         {"grad_y must ",
          [](A& a) {
            a.grad_y.dims = {kM, kN + 1};
          }},
         {"grad_x must ",
          [](A& a) {
            a.grad_y.dims = {kM + 1, kN};
          }},
         {"lora.a must ",
          [](A& a) {
            a.lora.a.dims = {kR, kK + 1};
          }},
         {"lora.grad_u must ",
          [](A& a) {
            a.lora.a.dims = {kR + 1, kK};
          }},
         {"weight.packed and grad_x overlap", [](A& a) { a.weight.packed = tail_of(a.grad_x, 1); }},
         {"weight.absmax and grad_x overlap",
          [](A& a) { a.weight.absmax = static_cast<const float*>(a.grad_x.data); }},
         {"grad_y and scratch overlap",
          [](A& a) { a.scratch.data = const_cast<void*>(a.grad_y.data); }},
         {"grad_x and scratch overlap", [](A& a) { a.scratch.data = a.grad_x.data; }}});
    check_contract(c);
  }
}

BOOST_AUTO_TEST_CASE(lora_backward) {
  using A = LoraBackwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    const View scratch = memory.take(DType::kU8, {256});
    ContractCase<A> c{
        .legal = {.grad_y = memory.take(dtype, {kM, kN}),
                  .x = memory.take(dtype, {kM, kK}),
                  .u = memory.f32({kM, kR}),
                  .a = memory.f32({kR, kK}),
                  .b = memory.f32({kN, kR}),
                  .scale = 2,
                  .dropout = {.probability = 0.5f},
                  .grad_u = memory.f32({kM, kR}),
                  .grad_a = memory.f32({kR, kK}),
                  .grad_b = memory.f32({kN, kR}),
                  .scratch = {scratch.data, scratch.bytes()}},
        .operands = {read<A>("grad_y", &A::grad_y).leading(), read<A>("x", &A::x),
                     read<A>("u", &A::u), read<A>("a", &A::a).leading(), read<A>("b", &A::b),
                     written<A>("grad_u", &A::grad_u), written<A>("grad_a", &A::grad_a),
                     written<A>("grad_b", &A::grad_b)},
        .in_place = {},
        .violations = {
            {"grad_y must ",
             [](A& a) {
               a.grad_y.dims = {0, kN};
             }},
            {"x must ",
             [](A& a) {
               a.grad_y.dims = {kM + 1, kN};
             }},
            {"b must ",
             [](A& a) {
               a.grad_y.dims = {kM, kN + 1};
             }},
            {"a must ",
             [](A& a) {
               a.a.dims = {0, kK};
             }},
            {"x must ",
             [](A& a) {
               a.a.dims = {kR, kK + 1};
             }},
            {"u must ",
             [](A& a) {
               a.a.dims = {kR + 1, kK};
             }},
            {"grad_a must ", [](A& a) { a.grad_a.dtype = DType::kBF16; }},
            {"grad_b and scratch overlap", [](A& a) { a.scratch.data = a.grad_b.data; }}}};
    for (const float p : {-0.1f, 1.0f, kNaN}) {
      c.violations.push_back(
          {"dropout probability must ", [=](A& a) { a.dropout.probability = p; }});
    }
    check_contract(c);
  }
}

// What both directions of attention say about the shape.
template <class A>
std::vector<Violation<A>> shape_violations() {
  return {{"batch and seq must ", [](A& a) { a.shape.batch = 0; }},
          {"batch and seq must ", [](A& a) { a.shape.seq = 0; }},
          {"heads must ", [](A& a) { a.shape.heads = 0; }},
          {"heads must ", [](A& a) { a.shape.heads = 3; }},
          {"heads must ", [](A& a) { a.shape.kv_heads = 0; }},
          {"head_dim must ", [](A& a) { a.shape.head_dim = 0; }},
          {"q must ", [](A& a) { a.shape.batch = 3; }},
          {"q must ", [](A& a) { a.shape.heads = 6; }},
          {"k must ", [](A& a) { a.shape.kv_heads = 4; }},
          {"k must ", [](A& a) { a.k.dtype = DType::kF16; }}};
}

constexpr AttentionShape kShape = {
    .batch = 2, .seq = 3, .heads = 4, .kv_heads = 2, .head_dim = 6, .scale = 0.4f};
constexpr Dims kWide = {6, 24}, kNarrow = {6, 12}, kStatistics = {2, 4, 3};

BOOST_AUTO_TEST_CASE(attention_forward) {
  using A = AttentionForwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    const View scratch = memory.take(DType::kU8, {256});
    ContractCase<A> c{.legal = {.shape = kShape,
                                .q = memory.take(dtype, kWide),
                                .k = memory.take(dtype, kNarrow),
                                .v = memory.take(dtype, kNarrow),
                                .out = memory.take(dtype, kWide),
                                .lse = memory.f32(kStatistics),
                                .scratch = {scratch.data, scratch.bytes()}},
                      .operands = {read<A>("q", &A::q), read<A>("k", &A::k), read<A>("v", &A::v),
                                   written<A>("out", &A::out), written<A>("lse", &A::lse)},
                      .in_place = {},
                      .violations = shape_violations<A>()};
    c.violations.push_back(
        {"v and scratch overlap", [](A& a) { a.scratch.data = const_cast<void*>(a.v.data); }});
    c.violations.push_back({"out and scratch overlap", [](A& a) { a.scratch.data = a.out.data; }});
    check_contract(c);
  }
}

BOOST_AUTO_TEST_CASE(attention_backward) {
  using A = AttentionBackwardArgs;
  for (const DType dtype : kFloats) {
    OperandMemory memory;
    const View scratch = memory.take(DType::kU8, {256});
    ContractCase<A> c{
        .legal = {.shape = kShape,
                  .grad_out = memory.take(dtype, kWide),
                  .q = memory.take(dtype, kWide),
                  .k = memory.take(dtype, kNarrow),
                  .v = memory.take(dtype, kNarrow),
                  .out = memory.take(dtype, kWide),
                  .lse = memory.f32(kStatistics),
                  .grad_q = memory.take(dtype, kWide),
                  .grad_k = memory.take(dtype, kNarrow),
                  .grad_v = memory.take(dtype, kNarrow),
                  .scratch = {scratch.data, scratch.bytes()}},
        .operands = {read<A>("grad_out", &A::grad_out), read<A>("q", &A::q), read<A>("k", &A::k),
                     read<A>("v", &A::v), read<A>("out", &A::out), read<A>("lse", &A::lse),
                     written<A>("grad_q", &A::grad_q), written<A>("grad_k", &A::grad_k),
                     written<A>("grad_v", &A::grad_v)},
        .in_place = {},
        .violations = shape_violations<A>()};
    c.violations.push_back(
        {"grad_v and scratch overlap", [](A& a) { a.scratch.data = a.grad_v.data; }});
    check_contract(c);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
