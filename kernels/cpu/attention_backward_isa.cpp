// Causal attention, backward, in two passes over tiles of recomputed probabilities: one by queries
// for grad_q, one by keys for grad_k and grad_v. Each output is written by one item of work alone,
// in a fixed order, whoever does it.
#include "kernels/cpu/attention_tile_isa.h"
#include "reprise/kernels/op_table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Scratch of one worker. "Left" operands are tiles of the side that the item is about.
template <class Operand>
struct WorkerTiles {
  using Element = typename Operand::Element;
  Element *left, *left_grad;        // [kTile, D]
  Element *columns, *columns_grad;  // panels: positions are the columns
  Element *depth, *depth_grad;      // panels: positions are the depth
  Element *weights, *grad_weights;  // [kTile, kTile]
  float *scores, *grad_scores, *sums, *second_sums;

  WorkerTiles(const AttentionGeometry& g, Carver& carver) {
    const std::int64_t d = g.shape.head_dim, words = whole_words<Operand>(d);
    left = carver.take<Element>(kTile * words);
    left_grad = carver.take<Element>(kTile * words);
    columns = carver.take<Element>(kPanel * words);
    columns_grad = carver.take<Element>(kPanel * words);
    depth = carver.take<Element>(g.depth_panels * kPanelStride);
    depth_grad = carver.take<Element>(g.depth_panels * kPanelStride);
    weights = carver.take<Element>(kTile * kTile);
    grad_weights = carver.take<Element>(kTile * kTile);
    scores = carver.take<float>(kTile * kTile);
    grad_scores = carver.take<float>(kTile * kTile);
    sums = carver.take<float>(kTile * d);
    second_sums = carver.take<float>(kTile * d);
  }
};

template <class Operand>
std::int64_t worker_bytes(const AttentionGeometry& g) {
  Carver carver(nullptr);
  const WorkerTiles<Operand> tiles(g, carver);
  return carver.used();
}

std::int64_t delta_bytes(const AttentionShape& s) {
  return (s.batch * s.heads * s.seq * 4 + 63) / 64 * 64;
}

template <class Operand>
struct Backward {
  const AttentionBackwardArgs& args;
  const AttentionGeometry& g;
  float* delta;  // [B, H, S]: sum over D of grad_out * out

  void make_delta(std::int64_t row) const {
    const std::int64_t d = g.shape.head_dim, width = g.shape.heads * d;
    const std::int64_t batch = row / g.shape.seq, s = row % g.shape.seq;
    with_elements(args.grad_out, [&](const auto* grad_out) {
      with_elements(args.out, [&](const auto* out) {
        for (std::int64_t h = 0; h < g.shape.heads; ++h) {
          const std::int64_t at = row * width + h * d;
          Floats sum{};
          for_lanes(0, d, [&](std::int64_t c, std::int64_t count) {
            sum = multiply_add(read(grad_out + at + c, count), read(out + at + c, count), sum);
          });
          delta[g.lse_row(batch, h, s)] = sum_of(sum);
        }
      });
    });
  }

  // grad_q of a tile of queries of one head.
  void queries(std::int64_t batch, std::int64_t head, std::int64_t q_tile,
               const WorkerTiles<Operand>& w) const {
    const std::int64_t d = g.shape.head_dim, group = head / g.group_heads;
    const HeadTile q = head_tile(g, args.q, batch, head, q_tile);
    copy_operand<Operand>(q, w.left);
    copy_operand<Operand>(head_tile(g, args.grad_out, batch, head, q_tile), w.left_grad);
    for (std::int64_t i = 0; i < kTile * d; ++i) w.sums[i] = 0;
    for (std::int64_t k_tile = 0; k_tile <= q_tile; ++k_tile) {
      const HeadTile k = head_tile(g, args.k, batch, group, k_tile);
      pack_positions_as_columns<Operand>(k, w.columns);
      pack_positions_as_columns<Operand>(head_tile(g, args.v, batch, group, k_tile),
                                         w.columns_grad);
      pack_positions_as_depth<Operand>(k, w.depth);
      multiply_transposed<Operand>(w.left, q.rows, w.columns, d, w.scores);
      multiply_transposed<Operand>(w.left_grad, q.rows, w.columns_grad, d, w.grad_scores);
      for (std::int64_t r = 0; r < q.rows; ++r) {
        const std::int64_t at = g.lse_row(batch, head, q_tile * kTile + r);
        query_row(r, k_tile < q_tile ? k.rows : r + 1, args.lse.template as<float>()[at], delta[at],
                  w);
      }
      add_weighted<Operand>(w.grad_weights, q.rows, k.rows, w.depth, d, w.sums);
    }
    write_head_tile(w.sums, args.grad_q, q);
  }

  // Gradients of the scores of one query; `visible` keys were looked at.
  void query_row(std::int64_t r, std::int64_t visible, float lse, float row_delta,
                 const WorkerTiles<Operand>& w) const {
    const float scale = g.shape.scale;
    for (std::int64_t j = 0; j < kTile; j += kLanes) {
      const Floats score = load_as<Floats>(w.scores + r * kTile + j) * scale;
      const Floats p = exponential(score - lse);
      const Floats grad = p * (load_as<Floats>(w.grad_scores + r * kTile + j) - row_delta) * scale;
      store_visible(grad, visible - j, w.grad_weights + r * kTile + j);
    }
  }

  // The first `count` lanes; the others are 0.
  static void store_visible(Floats values, std::int64_t count, typename Operand::Element* to) {
    if (count < kLanes) {
      for (std::int64_t lane = count > 0 ? count : 0; lane < kLanes; ++lane) values[lane] = 0;
    }
    Operand::store(values, to);
  }

  // grad_k and grad_v of a tile of keys: the sum over the query heads that read it.
  void keys(std::int64_t batch, std::int64_t group, std::int64_t k_tile,
            const WorkerTiles<Operand>& w) const {
    const std::int64_t d = g.shape.head_dim;
    const HeadTile k = head_tile(g, args.k, batch, group, k_tile);
    copy_operand<Operand>(k, w.left);
    copy_operand<Operand>(head_tile(g, args.v, batch, group, k_tile), w.left_grad);
    for (std::int64_t i = 0; i < kTile * d; ++i) w.sums[i] = w.second_sums[i] = 0;
    for (std::int64_t h = group * g.group_heads; h < (group + 1) * g.group_heads; ++h) {
      for (std::int64_t q_tile = k_tile; q_tile < g.tiles; ++q_tile) {
        const HeadTile q = head_tile(g, args.q, batch, h, q_tile);
        const HeadTile grad_out = head_tile(g, args.grad_out, batch, h, q_tile);
        pack_positions_as_columns<Operand>(q, w.columns);
        pack_positions_as_columns<Operand>(grad_out, w.columns_grad);
        pack_positions_as_depth<Operand>(q, w.depth);
        pack_positions_as_depth<Operand>(grad_out, w.depth_grad);
        multiply_transposed<Operand>(w.left, k.rows, w.columns, d, w.scores);
        multiply_transposed<Operand>(w.left_grad, k.rows, w.columns_grad, d, w.grad_scores);
        const std::int64_t at = g.lse_row(batch, h, q_tile * kTile);
        for (std::int64_t r = 0; r < k.rows; ++r) {
          key_row(r, q_tile > k_tile ? 0 : r, q.rows, at, w);
        }
        add_weighted<Operand>(w.grad_weights, k.rows, q.rows, w.depth, d, w.sums);
        add_weighted<Operand>(w.weights, k.rows, q.rows, w.depth_grad, d, w.second_sums);
      }
    }
    write_head_tile(w.sums, args.grad_k, k);
    write_head_tile(w.second_sums, args.grad_v, k);
  }

  // Probabilities and score gradients of one key over the queries [first, count) of a tile, whose
  // statistics start at `at`.
  void key_row(std::int64_t r, std::int64_t first, std::int64_t count, std::int64_t at,
               const WorkerTiles<Operand>& w) const {
    const float scale = g.shape.scale;
    const float* const lse = args.lse.template as<float>() + at;
    for (std::int64_t j = 0; j < kTile; j += kLanes) {
      const std::int64_t here = count - j < 0 ? 0 : shorter(kLanes, count - j);
      const Floats score = load_as<Floats>(w.scores + r * kTile + j) * scale;
      const Floats row_lse = read(lse + j, here), row_delta = read(delta + at + j, here);
      Floats p = exponential(score - row_lse);
      Floats grad = p * (load_as<Floats>(w.grad_scores + r * kTile + j) - row_delta) * scale;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        if (j + lane < first || j + lane >= count) p[lane] = grad[lane] = 0;
      }
      Operand::store(p, w.weights + r * kTile + j);
      Operand::store(grad, w.grad_weights + r * kTile + j);
    }
  }
};

template <class Operand>
void backward(const AttentionBackwardArgs& args, ThreadPool& pool) {
  const AttentionGeometry g(args.shape);
  const AttentionShape& s = args.shape;
  auto* const scratch = static_cast<char*>(args.scratch.data);
  const Backward<Operand> backward{args, g, reinterpret_cast<float*>(scratch)};
  char* const workers = scratch + delta_bytes(s);
  const std::int64_t bytes = worker_bytes<Operand>(g);
  pool.parallel_ranges(s.batch * s.seq, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) backward.make_delta(row);
  });
  // Items by length, the longest first: late queries see the most keys, early keys are seen by the
  // most queries. Both kinds in one list, so that the threads wait only once.
  const std::int64_t query_items = g.tiles * s.batch * s.heads;
  const std::int64_t key_items = g.tiles * s.batch * s.kv_heads;
  pool.parallel_dynamic(query_items + key_items, [&](std::int64_t index, int worker) {
    Carver carver(workers + worker * bytes);
    const WorkerTiles<Operand> tiles(g, carver);
    if (index < key_items) {
      const std::int64_t columns = s.batch * s.kv_heads, column = index % columns;
      backward.keys(column / s.kv_heads, column % s.kv_heads, index / columns, tiles);
    } else {
      const std::int64_t item = index - key_items, columns = s.batch * s.heads;
      const std::int64_t column = item % columns;
      backward.queries(column / s.heads, column % s.heads, g.tiles - 1 - item / columns, tiles);
    }
  });
}

void run(const AttentionBackwardArgs& args, const Execution& execution) {
  with_operand(args.compute,
               [&](auto operand) { backward<decltype(operand)>(args, *execution.pool); });
}

std::int64_t scratch_bytes(const AttentionBackwardArgs& args, int threads) {
  const AttentionGeometry g(args.shape);
  return delta_bytes(args.shape) + threads * with_operand(args.compute, [&](auto operand) {
                                     return worker_bytes<decltype(operand)>(g);
                                   });
}

}  // namespace

void append_attention_backward(OpTable& table) {
  table.attention_backward.push_back({"cpu." REPRISE_ISA_NAME ".tiled", check, scratch_bytes, run});
}

}  // namespace reprise::cpu::REPRISE_ISA
