// The vocabulary head and its loss. Valid rows are gathered and taken in blocks, the vocabulary in
// chunks. For a block, pass 1 makes the logits of one chunk at a time and keeps only their
// exponentials, in the compute type and relative to a power of two of the chunk; pass 2 multiplies
// those with the weight. No logit is made twice, and what is held is (rows of a block) x V
// exponentials, bounded by kExponentialBytes.
//
// The label's own term is left out of the exponentials and enters as the negative sum of all
// others: softmax - 1 without cancellation, however certain the prediction.
#include <cmath>

#include "kernels/cpu/dense_panel_isa.h"
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/lm_head_isa.h"
#include "kernels/cpu/softmax_chunk_isa.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr std::int64_t kChunk = 256;         // vocabulary entries, and pass 2's K block
constexpr std::int64_t kLargestBlock = 256;  // rows; packing the weight per block is then below 2 %
constexpr std::int64_t kExponentialBytes = 24 << 20;
constexpr double kLn2 = 0.693147180559945309;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

// What one row of a block needs between the passes.
struct RowState {
  std::int64_t row = 0;  // in x
  double nll = 0;
  float label_logit = 0;
  std::int32_t exponent = 0;  // the exponentials of the row are relative to 2^exponent
  float others = 0;           // sum over all but the label of exp(logit) * 2^-exponent
  float scale = 0;            // loss_scale / (sum of the exponentials)
};

// Pieces of the op's scratch.
template <class Operand>
struct HeadScratch {
  std::int64_t rows = 0;  // of the largest block
  std::int64_t chunks = 0;
  std::int64_t worker_bytes = 0;
  std::int64_t bytes = 0;
  std::int64_t states = 0, x = 0, exponentials = 0, sums = 0, workers = 0;  // offsets

  HeadScratch(const CrossEntropyArgs& args, int threads) {
    const std::int64_t m = args.x.dims[0];
    const std::int64_t c = args.x.dims[1];
    const std::int64_t element = static_cast<std::int64_t>(sizeof(typename Operand::Element));
    chunks = ceil_div(args.weight.dims[0], kChunk);
    rows = smaller(smaller(m, kLargestBlock),
                   larger(kExponentialBytes / (chunks * kChunk * element), 1));
    states = take(rows * static_cast<std::int64_t>(sizeof(RowState)));
    x = take(rows * whole_words<Operand>(c) * element);
    exponentials = take(args.grad_x.present() ? chunks * rows * kChunk * element : 0);
    sums = take(chunks * rows * static_cast<std::int64_t>(sizeof(ChunkSum)));
    // Pass 1 needs a panel over all of C and the logits of a chunk, pass 2 a panel over a chunk and
    // an accumulator.
    const std::int64_t panel = kPanel * larger(whole_words<Operand>(c), kChunk) * element;
    const std::int64_t block = rows * kChunk * static_cast<std::int64_t>(sizeof(float));
    worker_bytes = ceil_div(panel, 64) * 64 + ceil_div(block, 64) * 64;
    workers = take(threads * worker_bytes);
  }

 private:
  std::int64_t take(std::int64_t size) {
    const std::int64_t offset = bytes;
    bytes += ceil_div(size, 64) * 64;
    return offset;
  }
};

template <class Operand>
struct Head {
  using Element = typename Operand::Element;

  const CrossEntropyArgs& args;
  HeadScratch<Operand> layout;
  std::int64_t v, c;
  std::int64_t depth;  // of the logits: C in whole words
  RowState* states;
  Element* x;             // (rows, C)
  Element* exponentials;  // (chunk, rows, kChunk)
  ChunkSum* sums;         // (chunk, rows)

  Head(const CrossEntropyArgs& arguments, int threads)
      : args(arguments),
        layout(arguments, threads),
        v(arguments.weight.dims[0]),
        c(arguments.weight.dims[1]),
        depth(whole_words<Operand>(c)),
        states(at<RowState>(layout.states)),
        x(at<Element>(layout.x)),
        exponentials(at<Element>(layout.exponentials)),
        sums(at<ChunkSum>(layout.sums)) {}

  template <class U>
  U* at(std::int64_t offset) const {
    return reinterpret_cast<U*>(static_cast<char*>(args.scratch.data) + offset);
  }
  Element* panel(int worker) const {
    return at<Element>(layout.workers + worker * layout.worker_bytes);
  }
  float* block(int worker) const {
    return at<float>(layout.workers + (worker + 1) * layout.worker_bytes -
                     ceil_div(layout.rows * kChunk * 4, 64) * 64);
  }
};

// Pass 1 for one chunk: logits of all rows of the block, then their exponentials.
template <class Operand>
void chunk_forward(const Head<Operand>& head, std::int64_t rows, std::int64_t chunk, int worker) {
  const std::int64_t first = chunk * kChunk;
  const std::int64_t count = smaller(kChunk, head.v - first);
  const std::int64_t padded = ceil_div(count, kLanes) * kLanes;
  float* const logits = head.block(worker);
  auto* const panel = head.panel(worker);
  for (std::int64_t column = 0; column < count; column += kPanel) {
    const std::int64_t width = smaller(kPanel, count - column);
    pack_weight_rows<Operand>({.weight = head.args.weight,
                               .column = first + column,
                               .width = width,
                               .depth_begin = 0,
                               .depth_end = head.c},
                              panel);
    multiply_panel<Operand>({.a = head.x,
                             .lda = head.depth,
                             .panel = panel,
                             .depth = head.depth,
                             .c = logits + column,
                             .ldc = kChunk,
                             .width = width,
                             .mode = OutputMode::kOverwrite},
                            rows);
  }
  const auto* const labels = head.args.labels.template as<std::int32_t>();
  for (std::int64_t r = 0; r < rows; ++r) {
    float* const row = logits + r * kChunk;
    for (std::int64_t i = count; i < padded; ++i) row[i] = kMinusInfinity;
    RowState& state = head.states[r];
    const std::int64_t label = labels[state.row] - first;
    if (label >= 0 && label < count) {
      state.label_logit = row[label];
      row[label] = kMinusInfinity;
    }
    ChunkSum& sum = head.sums[chunk * head.layout.rows + r];
    if (head.args.grad_x.present()) {
      auto* const out = head.exponentials + (chunk * head.layout.rows + r) * kChunk;
      sum = chunk_exponentials<Operand>(row, padded, out);
      for (std::int64_t i = padded; i < kChunk; ++i) out[i] = {};
    } else {
      sum = chunk_exponentials<Fp32Operand>(row, padded, row);
    }
  }
}

// Between the passes, for one row: the sum over the chunks in their order, and the loss.
template <class Operand>
void combine_row(const Head<Operand>& head, std::int64_t r) {
  RowState& state = head.states[r];
  std::int32_t exponent = kNoExponent;
  for (std::int64_t chunk = 0; chunk < head.layout.chunks; ++chunk) {
    const std::int32_t e = head.sums[chunk * head.layout.rows + r].exponent;
    exponent = e > exponent ? e : exponent;
  }
  const double label_power = state.label_logit / kLn2;
  const bool representable = label_power > -kLargestLogit && label_power < kLargestLogit;
  if (representable && label_power > exponent) exponent = static_cast<std::int32_t>(label_power);
  double others = 0;
  for (std::int64_t chunk = 0; chunk < head.layout.chunks; ++chunk) {
    const ChunkSum& sum = head.sums[chunk * head.layout.rows + r];
    others += std::ldexp(static_cast<double>(sum.sum), sum.exponent - exponent);
  }
  const double label = state.label_logit - exponent * kLn2;
  state.exponent = exponent;
  state.others = static_cast<float>(others);
  state.nll = label > -1 ? std::log1p(others / std::exp(label))
                         : std::log(others + std::exp(label)) - label;
  state.scale = static_cast<float>(head.args.params->loss_scale / (others + std::exp(label)));
}

// Brings the exponentials of one chunk to the exponents of their rows and puts the label's in.
template <class Operand>
void finish_chunk(const Head<Operand>& head, std::int64_t rows, std::int64_t chunk) {
  const auto* const labels = head.args.labels.template as<std::int32_t>();
  for (std::int64_t r = 0; r < rows; ++r) {
    const RowState& state = head.states[r];
    auto* const row = head.exponentials + (chunk * head.layout.rows + r) * kChunk;
    const std::int32_t power = head.sums[chunk * head.layout.rows + r].exponent - state.exponent;
    if (power != 0) scale_chunk(power, kChunk, row);
    const std::int64_t label = labels[state.row] - chunk * kChunk;
    if (label >= 0 && label < kChunk) row[label] = Operand::from(-state.others);
  }
}

// Pass 2 for the columns [column, column + width) of grad_x and rows [begin, end) of the block.
template <class Operand>
void panel_backward(const Head<Operand>& head, std::int64_t begin, std::int64_t end,
                    std::int64_t column, int worker) {
  const std::int64_t width = smaller(kPanel, head.c - column);
  float* const sums = head.block(worker);
  auto* const panel = head.panel(worker);
  for (std::int64_t chunk = 0; chunk < head.layout.chunks; ++chunk) {
    const std::int64_t count = smaller(kChunk, head.v - chunk * kChunk);
    pack_weight_columns<Operand>({.weight = head.args.weight,
                                  .column = column,
                                  .width = width,
                                  .depth_begin = chunk * kChunk,
                                  .depth_end = chunk * kChunk + count},
                                 panel);
    multiply_panel<Operand>({.a = head.exponentials + (chunk * head.layout.rows + begin) * kChunk,
                             .lda = kChunk,
                             .panel = panel,
                             .depth = whole_words<Operand>(count),
                             .c = sums,
                             .ldc = kPanel,
                             .width = kPanel,
                             .mode = chunk == 0 ? OutputMode::kOverwrite : OutputMode::kAccumulate},
                            end - begin);
  }
  for (std::int64_t r = begin; r < end; ++r) {
    const RowState& state = head.states[r];
    float* const out = head.args.grad_x.template as<float>() + state.row * head.c + column;
    const float* const sum = sums + (r - begin) * kPanel;
    for (std::int64_t i = 0; i < width; ++i) out[i] = sum[i] * state.scale;
  }
}

template <class Operand>
void run_block(const Head<Operand>& head, std::int64_t rows, ThreadPool& pool) {
  pool.parallel_ranges(rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      gather_row<Operand>(head.args.x, head.states[r].row, head.x + r * head.depth);
    }
  });
  pool.parallel_dynamic(head.layout.chunks, [&](std::int64_t chunk, int worker) {
    chunk_forward(head, rows, chunk, worker);
  });
  pool.parallel_ranges(rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) combine_row(head, r);
  });
  if (!head.args.grad_x.present()) return;
  pool.parallel_dynamic(head.layout.chunks,
                        [&](std::int64_t chunk, int) { finish_chunk(head, rows, chunk); });
  const std::int64_t panels = ceil_div(head.c, kPanel);
  const std::int64_t parts = smaller(ceil_div(4 * pool.threads(), panels), ceil_div(rows, 32));
  const std::int64_t part = ceil_div(rows, parts);
  pool.parallel_dynamic(panels * parts, [&](std::int64_t item, int worker) {
    const std::int64_t begin = item % parts * part;
    panel_backward(head, begin, smaller(begin + part, rows), item / parts * kPanel, worker);
  });
}

void clear_masked_rows(const CrossEntropyArgs& args, ThreadPool& pool) {
  const bool all = args.params->loss_scale == 0;
  const std::int64_t c = args.x.dims[1];
  pool.parallel_ranges(args.x.dims[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t m = begin; m < end; ++m) {
      const bool masked = args.labels.as<std::int32_t>()[m] == kIgnoredLabel;
      if (masked && args.nll.present()) args.nll.as<float>()[m] = 0;
      if (!(masked || all) || !args.grad_x.present()) continue;
      for (std::int64_t i = 0; i < c; ++i) args.grad_x.as<float>()[m * c + i] = 0;
    }
  });
}

template <class Operand>
void run(const CrossEntropyArgs& args, const Execution& execution) {
  ThreadPool& pool = *execution.pool;
  clear_masked_rows(args, pool);
  CrossEntropyArgs wanted = args;
  if (args.params->loss_scale == 0) wanted.grad_x = {};
  const Head<Operand> head(wanted, pool.threads());
  const std::int64_t m = args.x.dims[0];
  const auto* const labels = args.labels.as<std::int32_t>();
  std::int64_t valid = 0;
  for (std::int64_t row = 0; row < m; ++row) valid += labels[row] == kIgnoredLabel ? 0 : 1;
  // Blocks of equal size: a short last one would pack the whole weight for a few rows.
  const std::int64_t blocks = ceil_div(valid, head.layout.rows);
  const std::int64_t block = blocks == 0 ? 0 : ceil_div(valid, blocks);
  double total = 0;
  for (std::int64_t next = 0; next < m;) {
    std::int64_t rows = 0;
    for (; next < m && rows < block; ++next) {
      // A label that no chunk holds is a caller's error; its logit stays a NaN and so does the
      // loss.
      if (labels[next] != kIgnoredLabel) {
        head.states[rows++] = {.row = next, .label_logit = __builtin_nanf("")};
      }
    }
    if (rows == 0) break;  // only masked rows are left
    run_block(head, rows, pool);
    for (std::int64_t r = 0; r < rows; ++r) {
      const RowState& state = head.states[r];
      total += state.nll;
      if (args.nll.present()) args.nll.as<float>()[state.row] = static_cast<float>(state.nll);
    }
  }
  const float scale = args.params->loss_scale;
  args.loss.as<float>()[args.params->micro_step] =
      scale == 0 ? 0.0f : static_cast<float>(scale * total);
}

std::int64_t scratch_bytes(const CrossEntropyArgs& args, int threads) {
  return with_operand(args.compute, [&](auto operand) {
    return HeadScratch<decltype(operand)>(args, threads).bytes;
  });
}

void cross_entropy(const CrossEntropyArgs& args, const Execution& execution) {
  with_operand(args.compute, [&](auto operand) { run<decltype(operand)>(args, execution); });
}

}  // namespace

void append_cross_entropy(OpTable& table) {
  table.cross_entropy.push_back({.name = "cpu." REPRISE_ISA_NAME ".chunked",
                                 .supports = check,
                                 .scratch_bytes = scratch_bytes,
                                 .run = cross_entropy});
  append_lm_head(table);
}

}  // namespace reprise::cpu::REPRISE_ISA
