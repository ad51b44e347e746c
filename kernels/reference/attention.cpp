// Causal attention by its formula, one query or one key at a time.
#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/tables.h"

namespace reprise::reference {
namespace {

// One head of one sequence.
struct Head {
  AttentionShape shape;
  std::int64_t batch, head;

  std::int64_t query(std::int64_t s, std::int64_t d) const {
    return ((batch * shape.seq + s) * shape.heads + head) * shape.head_dim + d;
  }
  std::int64_t key(std::int64_t s, std::int64_t d) const {
    const std::int64_t group = head / (shape.heads / shape.kv_heads);
    return ((batch * shape.seq + s) * shape.kv_heads + group) * shape.head_dim + d;
  }
  std::int64_t row(std::int64_t s) const { return (batch * shape.heads + head) * shape.seq + s; }

  double score(const ConstView& q, const ConstView& k, std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      sum += load(q, query(i, d)) * load(k, key(j, d));
    }
    return sum * static_cast<double>(shape.scale);
  }
};

template <class Args>
std::int64_t scratch_bytes(const Args& args, int) {
  return 2 * std::max(args.shape.seq, args.shape.head_dim) *
         static_cast<std::int64_t>(sizeof(double));
}

void forward_row(const AttentionForwardArgs& args, const Head& head, std::int64_t i) {
  auto* scores = static_cast<double*>(args.scratch.data);
  for (std::int64_t j = 0; j <= i; ++j) scores[j] = head.score(args.q, args.k, i, j);
  const double largest = *std::max_element(scores, scores + i + 1);
  double sum = 0;
  for (std::int64_t j = 0; j <= i; ++j) sum += std::exp(scores[j] - largest);
  const double lse = largest + std::log(sum);
  store(args.lse, head.row(i), lse);
  for (std::int64_t d = 0; d < args.shape.head_dim; ++d) {
    double out = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      out += std::exp(scores[j] - lse) * load(args.v, head.key(j, d));
    }
    store(args.out, head.query(i, d), out);
  }
}

void attention_forward(const AttentionForwardArgs& args, const Execution&) {
  for (std::int64_t b = 0; b < args.shape.batch; ++b) {
    for (std::int64_t h = 0; h < args.shape.heads; ++h) {
      const Head head{args.shape, b, h};
      for (std::int64_t i = 0; i < args.shape.seq; ++i) forward_row(args, head, i);
    }
  }
}

// The probability of score (i, j), and the gradient of the loss in the unscaled score.
struct ScoreGrad {
  double probability, grad;
};

ScoreGrad score_grad(const AttentionBackwardArgs& args, const Head& head, std::int64_t i,
                     std::int64_t j) {
  double grad_probability = 0, delta = 0;
  for (std::int64_t d = 0; d < head.shape.head_dim; ++d) {
    const double grad_out = load(args.grad_out, head.query(i, d));
    grad_probability += grad_out * load(args.v, head.key(j, d));
    delta += grad_out * load(args.out, head.query(i, d));
  }
  const double p = std::exp(head.score(args.q, args.k, i, j) - load(args.lse, head.row(i)));
  return {p, p * (grad_probability - delta) * static_cast<double>(head.shape.scale)};
}

void backward_query(const AttentionBackwardArgs& args, const Head& head, std::int64_t i) {
  auto* grads = static_cast<double*>(args.scratch.data);
  for (std::int64_t j = 0; j <= i; ++j) grads[j] = score_grad(args, head, i, j).grad;
  for (std::int64_t d = 0; d < head.shape.head_dim; ++d) {
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) sum += grads[j] * load(args.k, head.key(j, d));
    store(args.grad_q, head.query(i, d), sum);
  }
}

// What one query head adds to the gradients of key and value j of its group.
void add_key(const AttentionBackwardArgs& args, const Head& head, std::int64_t j, double* grad_k,
             double* grad_v) {
  for (std::int64_t i = j; i < head.shape.seq; ++i) {
    const ScoreGrad grad = score_grad(args, head, i, j);
    for (std::int64_t d = 0; d < head.shape.head_dim; ++d) {
      grad_k[d] += grad.grad * load(args.q, head.query(i, d));
      grad_v[d] += grad.probability * load(args.grad_out, head.query(i, d));
    }
  }
}

void backward_key(const AttentionBackwardArgs& args, std::int64_t batch, std::int64_t group,
                  std::int64_t j) {
  const AttentionShape& s = args.shape;
  const std::int64_t heads = s.heads / s.kv_heads;
  auto* grad_k = static_cast<double*>(args.scratch.data);
  double* grad_v = grad_k + s.head_dim;
  std::fill_n(grad_k, 2 * s.head_dim, 0.0);
  for (std::int64_t h = group * heads; h < (group + 1) * heads; ++h) {
    add_key(args, {s, batch, h}, j, grad_k, grad_v);
  }
  for (std::int64_t d = 0; d < s.head_dim; ++d) {
    const std::int64_t index = Head{s, batch, group * heads}.key(j, d);
    store(args.grad_k, index, grad_k[d]);
    store(args.grad_v, index, grad_v[d]);
  }
}

void attention_backward(const AttentionBackwardArgs& args, const Execution&) {
  for (std::int64_t b = 0; b < args.shape.batch; ++b) {
    for (std::int64_t i = 0; i < args.shape.seq; ++i) {
      for (std::int64_t h = 0; h < args.shape.heads; ++h) {
        backward_query(args, {args.shape, b, h}, i);
      }
      for (std::int64_t g = 0; g < args.shape.kv_heads; ++g) backward_key(args, b, g, i);
    }
  }
}

}  // namespace

void add_attention(OpTable& table) {
  table.attention_forward.push_back(
      {"reference", check, scratch_bytes<AttentionForwardArgs>, attention_forward});
  table.attention_backward.push_back(
      {"reference", check, scratch_bytes<AttentionBackwardArgs>, attention_backward});
}

}  // namespace reprise::reference
