#include "tests/cuda/on_device.h"

#include "kernels/simt/settings.h"
#include "reprise/kernels/cuda_ops.h"
#include "tests/cuda/mirror.h"
#include "tests/kernels/nf4_layer.h"

namespace reprise::test {
namespace {

// Written operands come first: they may share memory with what is read.
void for_operands(EmbeddingForwardArgs& a, Mirror& f) { f(a.y), f(a.ids), f(a.table); }
void for_operands(RmsNormForwardArgs& a, Mirror& f) { f(a.y), f(a.inv_rms), f(a.x), f(a.weight); }
void for_operands(RmsNormBackwardArgs& a, Mirror& f) {
  f(a.grad_x), f(a.grad_y), f(a.x), f(a.weight), f(a.inv_rms);
}
void for_operands(Nf4View& w, Mirror& f) {
  const void* packed = w.packed;
  const void* absmax = w.absmax;
  f.read_only(packed, nf4_packed_bytes(w.count()));
  f.read_only(absmax, nf4_blocks(w.count(), w.block_size) * 4);
  w.packed = static_cast<const std::uint8_t*>(packed);
  w.absmax = static_cast<const float*>(absmax);
}
void for_operands(LinearNf4ForwardArgs& a, Mirror& f) {
  f(a.y), f(a.lora.u), f(a.x), f(a.bias), f(a.lora.a), f(a.lora.b), f(a.lora.dropout.params);
  for_operands(a.weight, f);
}
void for_operands(LinearNf4BackwardArgs& a, Mirror& f) {
  f(a.grad_x), f(a.grad_y), f(a.lora.a), f(a.lora.grad_u), f(a.lora.dropout.params);
  for_operands(a.weight, f);
}
void for_operands(LoraBackwardArgs& a, Mirror& f) {
  f(a.grad_u), f(a.grad_a), f(a.grad_b), f(a.grad_y), f(a.x), f(a.u), f(a.a), f(a.b);
  f(a.dropout.params);
}
void for_operands(RopeArgs& a, Mirror& f) { f(a.y), f(a.x), f(a.table); }
void for_operands(AttentionForwardArgs& a, Mirror& f) {
  f(a.out), f(a.lse), f(a.q), f(a.k), f(a.v);
}
void for_operands(AttentionBackwardArgs& a, Mirror& f) {
  f(a.grad_q), f(a.grad_k), f(a.grad_v), f(a.grad_out), f(a.q), f(a.k), f(a.v), f(a.out), f(a.lse);
}
void for_operands(SwigluForwardArgs& a, Mirror& f) { f(a.y), f(a.gate), f(a.up); }
void for_operands(SwigluBackwardArgs& a, Mirror& f) {
  f(a.grad_gate), f(a.grad_up), f(a.grad_y), f(a.gate), f(a.up);
}
void for_operands(ResidualArgs& a, Mirror& f) { f(a.y), f(a.a), f(a.b); }
void for_operands(CrossEntropyArgs& a, Mirror& f) {
  f(a.loss), f(a.nll), f(a.grad_x), f(a.x), f(a.weight), f(a.labels), f(a.params);
}
void for_operands(LmHeadArgs& a, Mirror& f) { f(a.logits), f(a.x), f(a.weight); }
void for_operands(GradNormArgs& a, Mirror& f) { f(a.norm), f(a.grads); }
void for_operands(ClipArgs& a, Mirror& f) { f(a.decision), f(a.norm), f(a.loss); }
void for_operands(AdamWArgs& a, Mirror& f) {
  f(a.params), f(a.exp_avg), f(a.exp_avg_sq), f(a.grads), f(a.decision), f(a.step_params);
}
void for_operands(FillArgs& a, Mirror& f) { f(a.x); }

const OpTable& device_table() {
  static const OpTable table = cuda_ops();
  return table;
}

template <class Args, Implementations<Args> OpTable::*List>
void run_on_device(const Args& host, const Execution&) {
  Mirror mirror;
  Args args = host;
  for_operands(args, mirror);
  if constexpr (requires { args.scratch; }) mirror(args.scratch);
  (device_table().*List).at(0).run(args, {});
  BOOST_TEST(mirror.bring_back(), "a kernel wrote out of bounds");
}

template <class Args, Implementations<Args> OpTable::*List>
void add(OpTable& table) {
  const OpTable& device = device_table();
  BOOST_REQUIRE((device.*List).size() == 1);
  Implementation<Args> implementation = (device.*List)[0];
  BOOST_TEST(implementation.name == std::string("cuda.plain"));
  implementation.run = run_on_device<Args, List>;
  (table.*List).push_back(implementation);
}

}  // namespace

OpTable on_device() {
  OpTable table;
  add<EmbeddingForwardArgs, &OpTable::embedding_forward>(table);
  add<RmsNormForwardArgs, &OpTable::rms_norm_forward>(table);
  add<RmsNormBackwardArgs, &OpTable::rms_norm_backward>(table);
  add<LinearNf4ForwardArgs, &OpTable::linear_nf4_forward>(table);
  add<LinearNf4BackwardArgs, &OpTable::linear_nf4_backward>(table);
  add<LoraBackwardArgs, &OpTable::lora_backward>(table);
  add<RopeArgs, &OpTable::rope>(table);
  add<AttentionForwardArgs, &OpTable::attention_forward>(table);
  add<AttentionBackwardArgs, &OpTable::attention_backward>(table);
  add<SwigluForwardArgs, &OpTable::swiglu_forward>(table);
  add<SwigluBackwardArgs, &OpTable::swiglu_backward>(table);
  add<ResidualArgs, &OpTable::residual>(table);
  add<CrossEntropyArgs, &OpTable::cross_entropy>(table);
  add<LmHeadArgs, &OpTable::lm_head>(table);
  add<GradNormArgs, &OpTable::grad_norm>(table);
  add<ClipArgs, &OpTable::clip>(table);
  add<AdamWArgs, &OpTable::adamw>(table);
  add<FillArgs, &OpTable::fill>(table);
  return table;
}

Results in_every_order(const Op& op) {
  static const OpTable device = on_device();
  ThreadPool pool(1);
  Results first;
  for (const simt::Order order :
       {simt::Order::kFifo, simt::Order::kReverse, simt::Order::kRandom}) {
    simt::settings().order = order;
    Results results = op(device, pool);
    if (first.empty())
      first = std::move(results);
    else
      BOOST_TEST((results == first), "order " << static_cast<int>(order));
  }
  return first;
}

void check_close(const Op& op, double bound) {
  ThreadPool pool(1);
  const Results expected = op(reference_ops(), pool), results = in_every_order(op);
  BOOST_REQUIRE(results.size() == expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const double error = relative_error(results[i], expected[i]);
    BOOST_TEST(error <= bound, "result " << i << ": " << error << " above " << bound);
  }
}

void check_exact(const Op& op) {
  ThreadPool pool(1);
  BOOST_TEST((in_every_order(op) == op(reference_ops(), pool)));
}

}  // namespace reprise::test
