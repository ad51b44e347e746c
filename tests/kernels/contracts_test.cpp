// What check() refuses of the ops with products: one violation at a time, named in the reason.
// Pointwise ops, the loss and the update are in update_contracts_test.cpp.
#include <limits>

#include "tests/kernels/contracts.h"

namespace reprise::test {
namespace {

AttentionShape shape() {
  return {.batch = 2, .seq = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .scale = 0.5f};
}

Nf4View weight(std::int64_t n, std::int64_t k) {
  return {nullptr, nullptr, n, k, 64, NibbleOrder::kHighFirst};
}

BOOST_AUTO_TEST_SUITE(contracts)

BOOST_AUTO_TEST_CASE(linear_nf4_forward) {
  using A = LinearNf4ForwardArgs;
  A plain;
  plain.x = made(kBF16, {3, 70});
  plain.weight = weight(5, 70);
  plain.y = made(kF32, {3, 5});
  BOOST_TEST(check(plain).ok());
  A adapted = plain;
  adapted.bias = made(kF32, {5});
  adapted.lora.a = made(kF32, {2, 70});
  adapted.lora.b = made(kF32, {5, 2});
  adapted.lora.u = made(kF32, {3, 2});
  refuses<A>(adapted, {{"x must be a matrix", [](A& a) { a.x.dims = {}; }},
                       {"x must be",
                        [](A& a) {
                          a.x.dims = {3, 64};
                        }},
                       {"x must be", [](A& a) { a.x.dtype = kI32; }},
                       {"y must be",
                        [](A& a) {
                          a.y.dims = {5, 3};
                        }},
                       {"bias must be", [](A& a) { a.bias.dims = {70}; }},
                       {"weight must have", [](A& a) { a.weight.n = 0; }},
                       {"block_size", [](A& a) { a.weight.block_size = 96; }},
                       {"block_size", [](A& a) { a.weight.block_size = 32; }},
                       {"block_size", [](A& a) { a.weight.block_size = 8192; }},
                       {"block_size", [](A& a) { a.weight.block_size = -64; }},
                       {"cached_weight must be",
                        [](A& a) {
                          a.cached_weight = made(kBF16, {5, 70});
                        }},
                       {"cached_weight must be",
                        [](A& a) {
                          a.cached_weight = made(kF32, {70, 5});
                        }},
                       {"lora.a must be",
                        [](A& a) {
                          a.lora.a.dims = {2, 5};
                        }},
                       {"rank",
                        [](A& a) {
                          a.lora.a.dims = {0, 70};
                        }},
                       {"lora.b must be",
                        [](A& a) {
                          a.lora.b.dims = {2, 5};
                        }},
                       {"lora.u must be", [](A& a) { a.lora.u.dtype = kBF16; }},
                       {"dropout", [](A& a) { a.lora.dropout.probability = 1; }},
                       {"dropout", [](A& a) { a.lora.dropout.probability = -0.1f; }},
                       {"x and y overlap", [](A& a) { chain(a.x, a.y); }},
                       {"bias and y overlap", [](A& a) { chain(a.bias, a.y); }},
                       {"lora.b and y overlap", [](A& a) { chain(a.lora.b, a.y); }},
                       {"x and lora.u overlap", [](A& a) { chain(a.x, a.lora.u); }},
                       {"lora.a and lora.u overlap", [](A& a) { chain(a.lora.a, a.lora.u); }},
                       {"y and lora.u overlap", [](A& a) { chain(a.y, a.lora.u); }}});
}

BOOST_AUTO_TEST_CASE(linear_nf4_backward) {
  using A = LinearNf4BackwardArgs;
  refuses<A>({.grad_y = made(kBF16, {3, 5}),
              .weight = weight(5, 70),
              .cached_weight = {},
              .lora = {.a = made(kF32, {2, 70}), .grad_u = made(kF32, {3, 2}), .dropout = {}},
              .grad_x = made(kF32, {3, 70}),
              .scratch = {}},
             {{"grad_y must be a matrix",
               [](A& a) {
                 a.grad_y.dims = {0, 5};
               }},
              {"grad_y must be",
               [](A& a) {
                 a.grad_y.dims = {3, 70};
               }},
              {"grad_x must be",
               [](A& a) {
                 a.grad_x.dims = {3, 5};
               }},
              {"grad_x must be", [](A& a) { a.grad_x.dtype = kI32; }},
              {"weight must have", [](A& a) { a.weight.k = -1; }},
              {"block_size", [](A& a) { a.weight.block_size = 0; }},
              {"lora.grad_u must be",
               [](A& a) {
                 a.lora.grad_u.dims = {2, 3};
               }},
              {"lora.a must be", [](A& a) { a.lora.a.dtype = kBF16; }},
              {"dropout",
               [](A& a) { a.lora.dropout.probability = std::numeric_limits<float>::quiet_NaN(); }},
              {"grad_y and grad_x overlap", [](A& a) { chain(a.grad_y, a.grad_x); }},
              {"lora.a and grad_x overlap", [](A& a) { chain(a.lora.a, a.grad_x); }},
              {"lora.grad_u and grad_x overlap", [](A& a) { chain(a.lora.grad_u, a.grad_x); }}});
}

BOOST_AUTO_TEST_CASE(lora_backward) {
  using A = LoraBackwardArgs;
  refuses<A>({.grad_y = made(kBF16, {3, 5}),
              .x = made(kBF16, {3, 7}),
              .u = made(kF32, {3, 2}),
              .a = made(kF32, {2, 7}),
              .b = made(kF32, {5, 2}),
              .scale = 2,
              .dropout = {},
              .grad_u = made(kF32, {3, 2}),
              .grad_a = made(kF32, {2, 7}),
              .grad_b = made(kF32, {5, 2}),
              .scratch = {}},
             {{"grad_y must be", [](A& a) { a.grad_y.dtype = kI32; }},
              {"x must be",
               [](A& a) {
                 a.x.dims = {3, 5};
               }},
              {"u must be",
               [](A& a) {
                 a.u.dims = {2, 3};
               }},
              {"a must be a matrix", [](A& a) { a.a.dims = {14}; }},
              {"b must be",
               [](A& a) {
                 a.b.dims = {2, 5};
               }},
              {"grad_u must be", [](A& a) { a.grad_u.dtype = kBF16; }},
              {"grad_a must be",
               [](A& a) {
                 a.grad_a.dims = {7, 2};
               }},
              {"grad_b must be",
               [](A& a) {
                 a.grad_b.dims = {2, 5};
               }},
              {"u and grad_u overlap", [](A& a) { chain(a.u, a.grad_u); }},
              {"a and grad_a overlap", [](A& a) { chain(a.a, a.grad_a); }},
              {"x and grad_a overlap", [](A& a) { chain(a.x, a.grad_a); }},
              {"grad_y and grad_b overlap", [](A& a) { chain(a.grad_y, a.grad_b); }},
              {"grad_u and grad_a overlap", [](A& a) { chain(a.grad_u, a.grad_a); }},
              {"grad_a and grad_b overlap", [](A& a) { chain(a.grad_a, a.grad_b); }}});
}

BOOST_AUTO_TEST_CASE(attention_forward) {
  using A = AttentionForwardArgs;
  refuses<A>({.shape = shape(),
              .q = made(kF32, {6, 32}),
              .k = made(kF32, {6, 16}),
              .v = made(kF32, {6, 16}),
              .out = made(kF32, {6, 32}),
              .lse = made(kF32, {2, 4, 3}),
              .scratch = {}},
             {{"batch and seq", [](A& a) { a.shape.batch = 0; }},
              {"multiple of kv_heads", [](A& a) { a.shape.kv_heads = 3; }},
              {"head_dim", [](A& a) { a.shape.head_dim = 0; }},
              {"q must be",
               [](A& a) {
                 a.q.dims = {6, 16};
               }},
              {"k must be",
               [](A& a) {
                 a.k.dims = {6, 32};
               }},
              {"v must be", [](A& a) { a.v.dtype = kBF16; }},
              {"out must be", [](A& a) { a.out.dtype = kBF16; }},
              {"lse must be",
               [](A& a) {
                 a.lse.dims = {2, 3, 4};
               }},
              {"q and out overlap", [](A& a) { chain(a.q, a.out); }},
              {"v and out overlap", [](A& a) { chain(a.v, a.out); }},
              {"k and lse overlap", [](A& a) { chain(a.k, a.lse); }},
              {"out and lse overlap", [](A& a) { chain(a.out, a.lse); }}});
}

BOOST_AUTO_TEST_CASE(attention_backward) {
  using A = AttentionBackwardArgs;
  refuses<A>({.shape = shape(),
              .grad_out = made(kBF16, {6, 32}),
              .q = made(kF32, {6, 32}),
              .k = made(kF32, {6, 16}),
              .v = made(kF32, {6, 16}),
              .out = made(kF32, {6, 32}),
              .lse = made(kF32, {2, 4, 3}),
              .grad_q = made(kF32, {6, 32}),
              .grad_k = made(kF32, {6, 16}),
              .grad_v = made(kF32, {6, 16}),
              .scratch = {}},
             {{"grad_out must be",
               [](A& a) {
                 a.grad_out.dims = {3, 32};
               }},
              {"grad_q must be", [](A& a) { a.grad_q.dtype = kBF16; }},
              {"grad_k must be",
               [](A& a) {
                 a.grad_k.dims = {6, 32};
               }},
              {"grad_v must be",
               [](A& a) {
                 a.grad_v.dims = {3, 16};
               }},
              {"lse must be", [](A& a) { a.lse.dtype = kBF16; }},
              {"out and grad_q overlap", [](A& a) { chain(a.out, a.grad_q); }},
              {"lse and grad_k overlap", [](A& a) { chain(a.lse, a.grad_k); }},
              {"grad_k and grad_v overlap", [](A& a) { chain(a.grad_k, a.grad_v); }}});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
