// Causal attention, forward. An item of work is a tile of queries of all heads that share a
// key/value head: each tile of keys is packed once for them. The softmax is kept online, so that
// a row's scores exist for one tile of keys at a time.
#include "kernels/cpu/attention_tile_isa.h"
#include "kernels/cpu/isa_tables.h"

namespace reprise::cpu::REPRISE_ISA {

void append_attention_backward(OpTable& table);  // attention_backward_isa.cpp

namespace {

// Scratch of one worker.
template <class Operand>
struct WorkerTiles {
  using Element = typename Operand::Element;
  Element *queries, *keys, *values, *weights;  // queries of all heads of the group
  float *scores, *sums, *largest, *total;      // sums of all heads: [group_heads, kTile, D]

  WorkerTiles(const AttentionGeometry& g, Carver& carver) {
    const std::int64_t d = g.shape.head_dim, depth = whole_words<Operand>(d);
    queries = carver.take<Element>(g.group_heads * kTile * depth);
    keys = carver.take<Element>(kPanel * depth);
    values = carver.take<Element>(g.depth_panels * kPanelStride);
    weights = carver.take<Element>(kTile * kTile);
    scores = carver.take<float>(kTile * kTile);
    sums = carver.take<float>(g.group_heads * kTile * d);
    largest = carver.take<float>(g.group_heads * kTile);
    total = carver.take<float>(g.group_heads * kTile);
  }
};

template <class Operand>
std::int64_t worker_bytes(const AttentionGeometry& g) {
  Carver carver(nullptr);
  const WorkerTiles<Operand> tiles(g, carver);
  return carver.used();
}

// One row of a tile: scores become weights relative to the row's largest score so far, and what was
// summed up before is brought to the same scale. `visible` keys may be looked at.
template <class Operand>
void softmax_row(float* scores, std::int64_t visible, float scale, std::int64_t head_dim,
                 float* sums, float& largest, float& total, typename Operand::Element* weights) {
  float top = largest;
  for (std::int64_t j = 0; j < visible; ++j) {
    scores[j] *= scale;
    top = scores[j] > top ? scores[j] : top;
  }
  for (std::int64_t j = visible; j < kTile; ++j) scores[j] = -__builtin_inff();
  Floats sum{};
  for (std::int64_t j = 0; j < kTile; j += kLanes) {
    const Floats weight = exponential(load_as<Floats>(scores + j) - top);
    sum += weight;
    Operand::store(weight, weights + j);
  }
  const float shrink = exponential(Floats{} + (largest - top))[0];
  largest = top;
  total = total * shrink + sum_of(sum);
  if (shrink == 1.0f) return;
  for_lanes(0, head_dim, [&](std::int64_t d, std::int64_t count) {
    write(read(sums + d, count) * shrink, sums + d, count);
  });
}

template <class Operand>
struct Forward {
  const AttentionForwardArgs& args;
  const AttentionGeometry& g;

  void tile(std::int64_t batch, std::int64_t group, std::int64_t q_tile,
            const WorkerTiles<Operand>& w) const {
    const std::int64_t d = g.shape.head_dim, depth = whole_words<Operand>(d);
    const std::int64_t rows = g.tile_rows(q_tile);
    for (std::int64_t h = 0; h < g.group_heads; ++h) {
      copy_operand<Operand>(head_tile(g, args.q, batch, group * g.group_heads + h, q_tile),
                            w.queries + h * kTile * depth);
    }
    for (std::int64_t i = 0; i < g.group_heads * kTile; ++i) {
      w.largest[i] = -1e30f;  // below every score, and finite: differences of it are defined
      w.total[i] = 0;
    }
    for (std::int64_t i = 0; i < g.group_heads * kTile * d; ++i) w.sums[i] = 0;
    for (std::int64_t k_tile = 0; k_tile <= q_tile; ++k_tile) {
      const HeadTile keys = head_tile(g, args.k, batch, group, k_tile);
      pack_positions_as_columns<Operand>(keys, w.keys);
      pack_positions_as_depth<Operand>(head_tile(g, args.v, batch, group, k_tile), w.values);
      for (std::int64_t h = 0; h < g.group_heads; ++h) {
        multiply_transposed<Operand>(w.queries + h * kTile * depth, rows, w.keys, d, w.scores);
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t at = h * kTile + r;
          softmax_row<Operand>(w.scores + r * kTile, k_tile < q_tile ? keys.rows : r + 1,
                               g.shape.scale, d, w.sums + at * d, w.largest[at], w.total[at],
                               w.weights + r * kTile);
        }
        add_weighted<Operand>(w.weights, rows, keys.rows, w.values, d, w.sums + h * kTile * d);
      }
    }
    for (std::int64_t h = 0; h < g.group_heads; ++h) finish(batch, group, q_tile, h, w);
  }

  void finish(std::int64_t batch, std::int64_t group, std::int64_t q_tile, std::int64_t h,
              const WorkerTiles<Operand>& w) const {
    const std::int64_t d = g.shape.head_dim, head = group * g.group_heads + h;
    const HeadTile out = head_tile(g, args.q, batch, head, q_tile);
    float* const sums = w.sums + h * kTile * d;
    for (std::int64_t r = 0; r < out.rows; ++r) {
      const std::int64_t at = h * kTile + r;
      const float inverse = 1.0f / w.total[at];
      for_lanes(0, d, [&](std::int64_t c, std::int64_t count) {
        write(read(sums + r * d + c, count) * inverse, sums + r * d + c, count);
      });
      args.lse.as<float>()[g.lse_row(batch, head, q_tile * kTile + r)] =
          w.largest[at] + __builtin_logf(w.total[at]);
    }
    write_head_tile(sums, args.out, out);
  }
};

template <class Operand>
void forward(const AttentionForwardArgs& args, ThreadPool& pool) {
  const AttentionGeometry g(args.shape);
  const Forward<Operand> forward{args, g};
  const std::int64_t bytes = worker_bytes<Operand>(g);
  const std::int64_t columns = args.shape.batch * args.shape.kv_heads;
  pool.parallel_dynamic(g.tiles * columns, [&](std::int64_t index, int worker) {
    Carver carver(static_cast<char*>(args.scratch.data) + worker * bytes);
    const WorkerTiles<Operand> tiles(g, carver);
    // The last queries see the most keys: the longest items go first.
    const std::int64_t q_tile = g.tiles - 1 - index / columns, column = index % columns;
    forward.tile(column / args.shape.kv_heads, column % args.shape.kv_heads, q_tile, tiles);
  });
}

void run(const AttentionForwardArgs& args, const Execution& execution) {
  with_operand(args.compute,
               [&](auto operand) { forward<decltype(operand)>(args, *execution.pool); });
}

std::int64_t scratch_bytes(const AttentionForwardArgs& args, int threads) {
  const AttentionGeometry g(args.shape);
  return threads * with_operand(args.compute,
                                [&](auto operand) { return worker_bytes<decltype(operand)>(g); });
}

}  // namespace

void append_attention(OpTable& table) {
  table.attention_forward.push_back({"cpu." REPRISE_ISA_NAME ".tiled", check, scratch_bytes, run});
  append_attention_backward(table);
}

}  // namespace reprise::cpu::REPRISE_ISA
