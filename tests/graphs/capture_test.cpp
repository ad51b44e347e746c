// What a step refuses: stale graphs, batches of another shape, backends that cannot capture.
#include <boost/test/unit_test.hpp>

#include "tests/graphs/trainer_run.h"

namespace reprise::test {
namespace {

// A CPU that refuses to capture.
class CannotCapture final : public Backend {
 public:
  explicit CannotCapture(Backend& cpu) : cpu_(cpu) {}
  const std::string& name() const override { return cpu_.name(); }
  const OpTable& ops() const override { return cpu_.ops(); }
  int threads() const override { return cpu_.threads(); }
  Execution execution() override { return cpu_.execution(); }
  Buffer allocate(std::int64_t bytes, const std::string& what) override {
    return cpu_.allocate(bytes, what);
  }
  std::int64_t available_bytes() override { return cpu_.available_bytes(); }
  bool host_memory() const override { return true; }
  void upload(void* device, const void* host, std::int64_t bytes) override {
    cpu_.upload(device, host, bytes);
  }
  void download(void* host, const void* device, std::int64_t bytes) override {
    cpu_.download(host, device, bytes);
  }
  void fill(void* device, std::uint8_t byte, std::int64_t bytes) override {
    cpu_.fill(device, byte, bytes);
  }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>&) override {
    throw Error("nothing can be captured here");
  }

 private:
  Backend& cpu_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_graph_is_stale_once_its_memory_moves) {
  const Model model = tiny_model();
  const auto backend = make_reference_backend();
  StepOptions options;
  options.kind = StepKind::kUpdate;
  options.lora.rank = 4;
  const LoraLayout layout = make_lora_layout(model.config, options.lora);
  const StepGraph step = build_step(model.config, layout, options);
  std::vector<std::vector<std::byte>> memory;
  Bindings bindings(step.graph);
  for (std::size_t i = 0; i < step.graph.values.size(); ++i) {
    memory.emplace_back(static_cast<std::size_t>(step.graph.values[i].bytes()));
    bindings.memory[i] = memory.back().data();
  }
  const GraphPlan plan = make_plan(step.graph, backend->ops(), 1, Reuse::kReuse);
  std::vector<std::byte> arena(static_cast<std::size_t>(plan.arena_bytes) + 64);
  const BoundGraph bound(step.graph, plan, bindings, arena.data(), *backend);
  const CapturedGraph captured(bound);
  BOOST_TEST(captured.nodes() == step.graph.nodes.size());
  captured.replay(bound);
  std::vector<std::byte> elsewhere(memory[0].size());
  bindings.memory[0] = elsewhere.data();
  const BoundGraph moved(step.graph, plan, bindings, arena.data(), *backend);
  BOOST_CHECK_THROW(captured.replay(moved), Error);
  bindings.memory[0] = memory[0].data();
  captured.replay(BoundGraph(step.graph, plan, bindings, arena.data(), *backend));
  // The same memory, but another constant of one op.
  options.adamw.eps *= 2;
  const StepGraph changed = build_step(model.config, layout, options);
  const BoundGraph other(changed.graph, plan, bindings, arena.data(), *backend);
  BOOST_CHECK_THROW(captured.replay(other), Error);
  bindings.memory[0] = nullptr;
  BOOST_CHECK_THROW(BoundGraph(step.graph, plan, bindings, arena.data(), *backend), Error);
}

BOOST_AUTO_TEST_CASE(wrong_batches_are_refused) {
  Random random(test_seed(16));
  Run run(test_backends().front(), tiny_options(2, 9));
  const TokenBatch narrow = random_batch(random, 1, 9, 61);
  BOOST_CHECK_THROW(run.trainer.step({&narrow, 1}, 1e-3), Error);
  TokenBatch outside = random_batch(random, 2, 9, 61);
  outside.input_ids[4] = 61;
  BOOST_CHECK_THROW(run.trainer.step({&outside, 1}, 1e-3), InputError);
  outside.input_ids[4] = 0;
  outside.labels[4] = -5;
  BOOST_CHECK_THROW(run.trainer.step({&outside, 1}, 1e-3), InputError);
}

BOOST_AUTO_TEST_CASE(a_step_with_a_wrong_micro_batch_leaves_no_gradient_behind) {
  Random random(test_seed(17));
  TrainerOptions options = tiny_options(2, 9);
  options.shape.accumulate = 2;
  Run run(test_backends().front(), options), clean(test_backends().front(), options);
  std::vector<TokenBatch> batches = {random_batch(random, 2, 9, 61),
                                     random_batch(random, 2, 9, 61)};
  std::vector<TokenBatch> bad = batches;
  bad[1].input_ids[3] = 61;
  BOOST_CHECK_THROW(run.trainer.step(bad, 1e-3), InputError);
  run.trainer.step(batches, 1e-3);
  clean.trainer.step(batches, 1e-3);
  BOOST_TEST(same_bits(run.params(), clean.params()));
}

BOOST_AUTO_TEST_CASE(a_failed_capture_is_refused_or_replaced_as_asked) {
  Random random(test_seed(19));
  const TokenBatch batch = random_batch(random, 2, 9, 61);
  const Model model = tiny_model();
  const auto cpu = make_cpu_backend({.isa = Isa::kGeneric, .threads = 1});
  CannotCapture backend(*cpu);
  TrainerOptions options = tiny_options(2, 9);
  options.graph = GraphMode::kRequired;
  Trainer refused(model, options, backend);
  refused.initialise(3);
  BOOST_CHECK_THROW(refused.step({&batch, 1}, 1e-3), Error);

  options.graph = GraphMode::kAuto;
  Trainer eager(model, options, backend);
  eager.initialise(3);
  BOOST_TEST(eager.eager_reason().empty());
  const StepResult a = eager.step({&batch, 1}, 1e-3);
  BOOST_TEST(eager.eager_reason() == "nothing can be captured here");

  Trainer captured(model, options, *cpu);
  captured.initialise(3);
  const StepResult b = captured.step({&batch, 1}, 1e-3);
  BOOST_TEST(captured.eager_reason().empty());
  BOOST_TEST(a.loss == b.loss);
  BOOST_TEST(same_bits(eager.lora_params(), captured.lora_params()));
}

}  // namespace reprise::test
