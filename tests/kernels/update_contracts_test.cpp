// What check() refuses of the ops that work by row or element, of the loss and of the update.
#include <limits>

#include "tests/kernels/contracts.h"

namespace reprise::test {
namespace {

BOOST_AUTO_TEST_SUITE(update_contracts)

BOOST_AUTO_TEST_CASE(embedding_forward) {
  using A = EmbeddingForwardArgs;
  refuses<A>({.ids = made(kI32, {3}), .table = made(kBF16, {7, 5}), .y = made(kF32, {3, 5})},
             {{"ids must be", [](A& a) { a.ids.dtype = kF32; }},
              {"ids must be", [](A& a) { a.ids.dims = {4}; }},
              {"table must be a matrix", [](A& a) { a.table.dims = {35}; }},
              {"table must be",
               [](A& a) {
                 a.table.dims = {7, 6};
               }},
              {"table must be", [](A& a) { a.table.dtype = kI32; }},
              {"y must be", [](A& a) { a.y.dtype = kBF16; }},
              {"y must be a matrix",
               [](A& a) {
                 a.y.dims = {0, 5};
               }},
              {"table and y overlap", [](A& a) { chain(a.table, a.y); }},
              {"ids and y overlap", [](A& a) { chain(a.ids, a.y); }}});
}

BOOST_AUTO_TEST_CASE(rms_norm) {
  using F = RmsNormForwardArgs;
  refuses<F>({.x = made(kF32, {3, 5}),
              .weight = made(kF32, {5}),
              .eps = 1e-5f,
              .y = made(kBF16, {3, 5}),
              .inv_rms = made(kF32, {3})},
             {{"x must be", [](F& a) { a.x.dtype = kBF16; }},
              {"x must be a matrix", [](F& a) { a.x.dims = {15}; }},
              {"weight must be", [](F& a) { a.weight.dims = {6}; }},
              {"y must be",
               [](F& a) {
                 a.y.dims = {5, 3};
               }},
              {"inv_rms must be", [](F& a) { a.inv_rms.dims = {5}; }},
              {"eps", [](F& a) { a.eps = -1; }},
              {"eps", [](F& a) { a.eps = std::numeric_limits<float>::quiet_NaN(); }},
              {"x and y overlap", [](F& a) { a.y.data = const_cast<void*>(a.x.data); }},
              {"weight and y overlap", [](F& a) { chain(a.weight, a.y); }},
              {"x and inv_rms overlap", [](F& a) { chain(a.x, a.inv_rms); }},
              {"y and inv_rms overlap", [](F& a) { chain(a.y, a.inv_rms); }}});
  using B = RmsNormBackwardArgs;
  refuses<B>({.grad_y = made(kF32, {3, 5}),
              .x = made(kF32, {3, 5}),
              .weight = made(kF32, {5}),
              .inv_rms = made(kF32, {3}),
              .grad_x = made(kF32, {3, 5})},
             {{"grad_y must be",
               [](B& a) {
                 a.grad_y.dims = {3, 4};
               }},
              {"inv_rms must be", [](B& a) { a.inv_rms.dtype = kBF16; }},
              {"weight must be", [](B& a) { a.weight.dims = {3}; }},
              {"grad_x must be", [](B& a) { a.grad_x.dtype = kBF16; }},
              {"grad_y and grad_x overlap", [](B& a) { chain(a.grad_y, a.grad_x); }},
              {"x and grad_x overlap", [](B& a) { chain(a.x, a.grad_x); }},
              {"inv_rms and grad_x overlap", [](B& a) { chain(a.inv_rms, a.grad_x); }}});
}

BOOST_AUTO_TEST_CASE(rope) {
  using A = RopeArgs;
  const A legal = {.x = made(kBF16, {6, 16}),
                   .table = made(kF32, {3, 4, 2}),
                   .heads = 2,
                   .y = made(kBF16, {6, 16})};
  A in_place = legal;
  in_place.y.data = const_cast<void*>(legal.x.data);
  BOOST_TEST(check(in_place).ok());
  refuses<A>(legal, {{"x must be",
                      [](A& a) {
                        a.x.dims = {6, 8};
                      }},
                     {"table must be",
                      [](A& a) {
                        a.table.dims = {3, 8};
                      }},
                     {"table must be",
                      [](A& a) {
                        a.table.dims = {3, 4, 3};
                      }},
                     {"table must not be empty",
                      [](A& a) {
                        a.table.dims = {0, 4, 2};
                      }},
                     {"rows must be a multiple",
                      [](A& a) {
                        a.table.dims = {4, 4, 2};
                      }},
                     {"heads", [](A& a) { a.heads = 0; }},
                     {"y must be", [](A& a) { a.y.dtype = kF32; }},
                     {"x and y overlap", [](A& a) { chain(a.x, a.y); }},
                     {"table and y overlap", [](A& a) { chain(a.table, a.y); }}});
}

BOOST_AUTO_TEST_CASE(swiglu) {
  using F = SwigluForwardArgs;
  refuses<F>({.gate = made(kBF16, {3, 5}), .up = made(kBF16, {3, 5}), .y = made(kBF16, {3, 5})},
             {{"gate must be a matrix", [](F& a) { a.gate.dims = {15}; }},
              {"gate must be", [](F& a) { a.gate.dtype = kI32; }},
              {"up must be", [](F& a) { a.up.dtype = kF32; }},
              {"y must be",
               [](F& a) {
                 a.y.dims = {5, 3};
               }},
              {"gate and y overlap", [](F& a) { a.y.data = const_cast<void*>(a.gate.data); }},
              {"up and y overlap", [](F& a) { chain(a.up, a.y); }}});
  using B = SwigluBackwardArgs;
  const B legal = {.grad_y = made(kF32, {3, 5}),
                   .gate = made(kF32, {3, 5}),
                   .up = made(kF32, {3, 5}),
                   .grad_gate = made(kF32, {3, 5}),
                   .grad_up = made(kF32, {3, 5})};
  B in_place = legal;
  in_place.grad_gate.data = const_cast<void*>(legal.gate.data);
  in_place.grad_up.data = const_cast<void*>(legal.up.data);
  BOOST_TEST(check(in_place).ok());
  refuses<B>(legal,
             {{"grad_y must be", [](B& a) { a.grad_y.dtype = kBF16; }},
              {"grad_gate must be",
               [](B& a) {
                 a.grad_gate.dims = {3, 4};
               }},
              {"grad_up must be", [](B& a) { a.grad_up.dtype = kBF16; }},
              {"gate and grad_gate overlap", [](B& a) { chain(a.gate, a.grad_gate); }},
              {"up and grad_up overlap", [](B& a) { chain(a.up, a.grad_up); }},
              {"up and grad_gate overlap", [](B& a) { chain(a.up, a.grad_gate); }},
              {"gate and grad_up overlap", [](B& a) { chain(a.gate, a.grad_up); }},
              {"grad_y and grad_gate overlap", [](B& a) { chain(a.grad_y, a.grad_gate); }},
              {"grad_gate and grad_up overlap", [](B& a) { chain(a.grad_gate, a.grad_up); }}});
}

BOOST_AUTO_TEST_CASE(residual_and_fill) {
  using A = ResidualArgs;
  const A legal = {.a = made(kF32, {3, 5}), .b = made(kBF16, {3, 5}), .y = made(kF32, {3, 5})};
  A in_place = legal;
  in_place.y.data = const_cast<void*>(legal.a.data);
  BOOST_TEST(check(in_place).ok());
  refuses<A>(legal, {{"a must have elements", [](A& a) { a.a.dims = {}; }},
                     {"a must be", [](A& a) { a.a.dtype = kBF16; }},
                     {"b must be",
                      [](A& a) {
                        a.b.dims = {5, 3};
                      }},
                     {"y must be", [](A& a) { a.y.dtype = kBF16; }},
                     {"a and y overlap", [](A& a) { chain(a.a, a.y); }},
                     {"b and y overlap", [](A& a) { chain(a.b, a.y); }}});
  using F = FillArgs;
  refuses<F>({.x = made(kF32, {3})}, {{"x must have elements", [](F& a) { a.x.dims = {0}; }},
                                      {"x must be", [](F& a) { a.x.dtype = kBF16; }}});
}

BOOST_AUTO_TEST_CASE(cross_entropy_and_lm_head) {
  using A = CrossEntropyArgs;
  refuses<A>({.x = made(kBF16, {3, 5}),
              .weight = made(kF32, {7, 5}),
              .labels = made(kI32, {3}),
              .params = nullptr,
              .loss = made(kF32, {2}),
              .nll = made(kF32, {3}),
              .grad_x = made(kF32, {3, 5}),
              .scratch = {}},
             {{"x must be a matrix",
               [](A& a) {
                 a.x.dims = {0, 5};
               }},
              {"weight must be a matrix", [](A& a) { a.weight.dims = {35}; }},
              {"weight must be",
               [](A& a) {
                 a.weight.dims = {7, 6};
               }},
              {"labels must be", [](A& a) { a.labels.dtype = DType::kI64; }},
              {"labels must be", [](A& a) { a.labels.dims = {4}; }},
              {"loss must have", [](A& a) { a.loss.dims = {}; }},
              {"loss must be", [](A& a) { a.loss.dtype = kBF16; }},
              {"nll must be", [](A& a) { a.nll.dims = {2}; }},
              {"grad_x must be", [](A& a) { a.grad_x.dtype = kBF16; }},
              {"x and grad_x overlap", [](A& a) { chain(a.x, a.grad_x); }},
              {"weight and grad_x overlap", [](A& a) { chain(a.weight, a.grad_x); }},
              {"labels and nll overlap", [](A& a) { chain(a.labels, a.nll); }},
              {"loss and nll overlap", [](A& a) { chain(a.loss, a.nll); }}});
  using H = LmHeadArgs;
  refuses<H>({.x = made(kF32, {3, 5}),
              .weight = made(kF32, {7, 5}),
              .logits = made(kF32, {3, 7}),
              .scratch = {}},
             {{"x must be", [](H& a) { a.x.dtype = kI32; }},
              {"weight must be",
               [](H& a) {
                 a.weight.dims = {7, 4};
               }},
              {"logits must be",
               [](H& a) {
                 a.logits.dims = {7, 3};
               }},
              {"weight and logits overlap", [](H& a) { chain(a.weight, a.logits); }}});
}

BOOST_AUTO_TEST_CASE(grad_norm_and_clip) {
  using N = GradNormArgs;
  refuses<N>({.grads = made(kF32, {9}), .norm = made(kF32, {1}), .scratch = {}},
             {{"grads must be a vector",
               [](N& a) {
                 a.grads.dims = {3, 3};
               }},
              {"grads must be", [](N& a) { a.grads.dtype = kBF16; }},
              {"norm must be", [](N& a) { a.norm.dims = {2}; }},
              {"grads and norm overlap", [](N& a) { chain(a.grads, a.norm); }}});
  using C = ClipArgs;
  refuses<C>({.norm = made(kF32, {1}),
              .loss = made(kF32, {2}),
              .max_norm = 1,
              .decision = made(kF32, {2})},
             {{"norm must be", [](C& a) { a.norm.dtype = kBF16; }},
              {"loss must be a vector", [](C& a) { a.loss.dims = {}; }},
              {"decision must be", [](C& a) { a.decision.dims = {1}; }},
              {"max_norm", [](C& a) { a.max_norm = -1; }},
              {"max_norm", [](C& a) { a.max_norm = std::numeric_limits<float>::quiet_NaN(); }},
              {"loss and decision overlap", [](C& a) { chain(a.loss, a.decision); }}});
}

BOOST_AUTO_TEST_CASE(adamw) {
  using A = AdamWArgs;
  refuses<A>({.params = made(kF32, {9}),
              .grads = made(kF32, {9}),
              .exp_avg = made(kF32, {9}),
              .exp_avg_sq = made(kF32, {9}),
              .decision = made(kF32, {2})},
             {{"params must be a vector",
               [](A& a) {
                 a.params.dims = {3, 3};
               }},
              {"params must be", [](A& a) { a.params.dtype = kBF16; }},
              {"grads must be", [](A& a) { a.grads.dims = {8}; }},
              {"exp_avg must be", [](A& a) { a.exp_avg.dims = {8}; }},
              {"exp_avg_sq must be", [](A& a) { a.exp_avg_sq.dtype = kBF16; }},
              {"decision must be", [](A& a) { a.decision.dims = {1}; }},
              {"betas", [](A& a) { a.beta1 = 1; }},
              {"betas", [](A& a) { a.beta2 = -0.5f; }},
              {"eps", [](A& a) { a.eps = 0; }},
              {"weight_decay", [](A& a) { a.weight_decay = -1; }},
              {"grads and params overlap", [](A& a) { chain(a.grads, a.params); }},
              {"grads and exp_avg overlap", [](A& a) { chain(a.grads, a.exp_avg); }},
              {"grads and exp_avg_sq overlap", [](A& a) { chain(a.grads, a.exp_avg_sq); }},
              {"decision and params overlap", [](A& a) { chain(a.decision, a.params); }},
              {"params and exp_avg overlap", [](A& a) { chain(a.params, a.exp_avg); }},
              {"exp_avg and exp_avg_sq overlap", [](A& a) { chain(a.exp_avg, a.exp_avg_sq); }}});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
