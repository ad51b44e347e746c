// Gradients of causal attention: grouped heads, two sequences, ragged lengths.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>

#include "tests/gradients/directional.h"

namespace reprise::test {
namespace {

struct Attention {
  AttentionShape shape;
  std::vector<float> q, k, v, out, lse, grad_out;

  Attention(const AttentionShape& s, Random& random)
      : shape(s),
        q(grid_values(random, s.batch * s.seq * s.heads * s.head_dim)),
        k(grid_values(random, s.batch * s.seq * s.kv_heads * s.head_dim)),
        v(grid_values(random, s.batch * s.seq * s.kv_heads * s.head_dim)),
        out(zeros(static_cast<std::int64_t>(q.size()))),
        lse(zeros(s.batch * s.heads * s.seq)),
        grad_out(grid_values(random, static_cast<std::int64_t>(q.size()))) {}

  Dims wide() const { return {shape.batch * shape.seq, shape.heads * shape.head_dim}; }
  Dims narrow() const { return {shape.batch * shape.seq, shape.kv_heads * shape.head_dim}; }
  Dims rows() const { return {shape.batch, shape.heads, shape.seq}; }

  const std::vector<float>& forward() {
    AttentionForwardArgs args;
    args.shape = shape;
    args.q = view(q, wide());
    args.k = view(k, narrow());
    args.v = view(v, narrow());
    args.out = view(out, wide());
    args.lse = view(lse, rows());
    run_op(reference_table().attention_forward, args, "attention_forward");
    return out;
  }
};

void check_attention(const NamedTable& table, AttentionShape shape, Random& random) {
  shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  Attention attention(shape, random);
  attention.forward();
  std::vector<float> grad_q(attention.q.size(), NAN), grad_k(attention.k.size(), NAN);
  std::vector<float> grad_v(attention.v.size(), NAN);
  AttentionBackwardArgs args;
  args.shape = shape;
  args.grad_out = view(attention.grad_out, attention.wide());
  args.q = view(attention.q, attention.wide());
  args.k = view(attention.k, attention.narrow());
  args.v = view(attention.v, attention.narrow());
  args.out = view(attention.out, attention.wide());
  args.lse = view(attention.lse, attention.rows());
  args.grad_q = view(grad_q, attention.wide());
  args.grad_k = view(grad_k, attention.narrow());
  args.grad_v = view(grad_v, attention.narrow());
  const bool has_run = run_op(table.ops.attention_backward, args, "attention_backward");
  if (!ran(table, has_run, "attention_backward")) return;

  const std::string what = table.name + " attention seq " + std::to_string(shape.seq);
  GradientCheck check{.what = what + " grad_q",
                      .input = &attention.q,
                      .grad = &grad_q,
                      .forward = [&attention] { return attention.forward(); },
                      .grad_y = &attention.grad_out};
  check_gradient(check, random);
  check.what = what + " grad_k";
  check.input = &attention.k;
  check.grad = &grad_k;
  check_gradient(check, random);
  check.what = what + " grad_v";
  check.input = &attention.v;
  check.grad = &grad_v;
  check_gradient(check, random);
}

BOOST_AUTO_TEST_SUITE(attention_gradients)

BOOST_AUTO_TEST_CASE(queries_keys_and_values) {
  Random random(test_seed(31));
  for (const NamedTable& table : tables_under_test()) {
    check_attention(table, {.batch = 1, .seq = 15, .heads = 2, .kv_heads = 2, .head_dim = 16},
                    random);
    check_attention(table, {.batch = 2, .seq = 17, .heads = 4, .kv_heads = 2, .head_dim = 32},
                    random);
    check_attention(table, {.batch = 2, .seq = 9, .heads = 3, .kv_heads = 1, .head_dim = 64},
                    random);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
