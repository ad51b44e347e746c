// The step on a device with memory of its own: the CUDA backend, its capture and its kernels, on
// the emulated device.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <map>

#include "reprise/runtime/place_model.h"
#include "tests/graphs/trainer_run.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kBatch = 2, kSeq = 9, kVocabulary = 61;

TrainerOptions step_options(GraphMode graph, std::int64_t accumulate = 1) {
  TrainerOptions options = tiny_options(kBatch, kSeq);
  options.shape.accumulate = accumulate;
  options.lora.dropout = 0.25;
  options.graph = graph;
  return options;
}

// A trainer on the emulated device.
struct DeviceRun {
  std::unique_ptr<Backend> backend = make_emulated_backend();
  Model model;
  Trainer trainer;

  explicit DeviceRun(const TrainerOptions& options)
      : model(place_model(tiny_model(options.compute), *backend)),
        trainer(model, options, *backend) {
    trainer.initialise(3);
  }
};

// Losses and norms of some steps with a changing rate, then the adapter. Activations are
// overwritten before each step: what is read before it is written shows.
std::vector<float> trace(Trainer& trainer, int steps, std::int64_t accumulate,
                         std::uint8_t poison) {
  Random random(99);
  std::vector<float> out;
  for (int i = 0; i < steps; ++i) {
    std::vector<TokenBatch> batches;
    for (std::int64_t b = 0; b < accumulate; ++b) {
      batches.push_back(random_batch(random, kBatch, kSeq, kVocabulary));
    }
    trainer.poison_activations(poison);
    const StepResult result = trainer.step(batches, 1e-3 * (1 + i % 5));
    BOOST_TEST_REQUIRE(result.finite, result.bad_node);
    out.push_back(static_cast<float>(result.loss));
    out.push_back(static_cast<float>(result.grad_norm));
  }
  const std::vector<float> params = trainer.lora_params();
  out.insert(out.end(), params.begin(), params.end());
  return out;
}

std::map<std::string, std::int64_t> count_kernels(const Trainer& trainer) {
  std::map<std::string, std::int64_t> counts;
  for (const CapturedNode& node : trainer.device_nodes()) {
    BOOST_TEST(node.type == "kernel");
    ++counts[node.name];
  }
  return counts;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(emulated_step)

BOOST_AUTO_TEST_CASE(replay_equals_eager_bit_for_bit) {
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    for (const std::int64_t accumulate : {1, 2}) {
      BOOST_TEST_CONTEXT(name_of(compute) << " accumulate " << accumulate) {
        TrainerOptions options = step_options(GraphMode::kOff, accumulate);
        options.compute = compute;
        DeviceRun eager(options);
        options.graph = GraphMode::kRequired;
        DeviceRun replayed(options);
        const int steps = compute == ComputeType::kF32 && accumulate == 1 ? 20 : 4;
        BOOST_TEST(same_bits(trace(eager.trainer, steps, accumulate, 0x00),
                             trace(replayed.trainer, steps, accumulate, 0xff)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_captured_graph_holds_a_backward_kernel_for_each_projection) {
  DeviceRun run(step_options(GraphMode::kRequired));
  BOOST_TEST(run.trainer.device_nodes().empty());
  trace(run.trainer, 1, 1, 0);
  const std::map<std::string, std::int64_t> kernels = count_kernels(run.trainer);
  const std::int64_t projections =
      run.model.config.num_hidden_layers * static_cast<std::int64_t>(kProjections);
  for (const char* op : {"linear_nf4_forward", "linear_nf4_backward"}) {
    std::int64_t found = 0;
    for (const auto& [name, count] : kernels) found += name.starts_with(op) ? count : 0;
    BOOST_TEST(found == projections, op << ": " << found);
  }
}

BOOST_AUTO_TEST_CASE(evaluation_and_sampling_change_nothing_in_training) {
  Random random(test_seed(21));
  const TokenBatch held_out = random_batch(random, 1, 7, kVocabulary);
  DeviceRun plain(step_options(GraphMode::kRequired));
  DeviceRun evaluated(step_options(GraphMode::kRequired));
  const TokenBatch batch = random_batch(random, kBatch, kSeq, kVocabulary);
  for (int i = 0; i < 3; ++i) {
    plain.trainer.step({&batch, 1}, 1e-3);
    const EvaluationResult first = evaluated.trainer.evaluate(held_out);
    BOOST_TEST(first.nll_sum == evaluated.trainer.evaluate(held_out).nll_sum);
    BOOST_TEST(evaluated.trainer.next_logits(held_out.input_ids).size() ==
               static_cast<std::size_t>(kVocabulary));
    evaluated.trainer.step({&batch, 1}, 1e-3);
  }
  BOOST_TEST(same_bits(plain.trainer.lora_params(), evaluated.trainer.lora_params()));
}

BOOST_AUTO_TEST_CASE(fifty_captures_leave_the_memory_of_the_device_as_it_was) {
  Random random(test_seed(22));
  const TokenBatch batch = random_batch(random, kBatch, kSeq, kVocabulary);
  const auto backend = make_emulated_backend();
  const Model model = place_model(tiny_model(), *backend);
  const std::int64_t before = backend->available_bytes();
  for (int i = 0; i < 50; ++i) {
    TrainerOptions options = step_options(GraphMode::kRequired);
    options.shape = {.batch = 1, .seq = 2};
    options.lora.rank = 1 + i % 3;
    Trainer trainer(model, options, *backend);
    trainer.initialise(3);
    const TokenBatch tiny = random_batch(random, 1, 2, kVocabulary);
    trainer.step({&tiny, 1}, 1e-3);
  }
  BOOST_TEST(backend->available_bytes() == before);
}

BOOST_AUTO_TEST_CASE(a_model_that_was_not_placed_is_refused) {
  const auto backend = make_emulated_backend();
  const Model model = tiny_model();
  BOOST_CHECK_EXCEPTION(Trainer(model, step_options(GraphMode::kRequired), *backend), Error,
                        [](const Error& e) {
                          return std::string(e.what()).find("place_model") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(values_that_are_not_finite_are_named_and_never_applied) {
  Random random(test_seed(23));
  const TokenBatch batch = random_batch(random, kBatch, kSeq, kVocabulary);
  const auto backend = make_emulated_backend();
  Model model = tiny_model();
  model.layers[1].post_attention_norm.view().as<float>()[5] =
      std::numeric_limits<float>::quiet_NaN();
  model = place_model(std::move(model), *backend);
  Trainer trainer(model, step_options(GraphMode::kRequired), *backend);
  trainer.initialise(3);
  const std::vector<float> before = trainer.lora_params();
  const StepResult result = trainer.step({&batch, 1}, 1e-2);
  BOOST_TEST(!result.finite);
  BOOST_TEST(result.bad_node.find("layers.1. rms_norm_forward") == 0u, result.bad_node);
  BOOST_TEST(same_bits(trainer.lora_params(), before));
}

// Only the first micro-batch meets the bad row of the embedding, so it has to be on the device
// again when the search runs.
BOOST_AUTO_TEST_CASE(the_bad_micro_batch_is_searched_not_the_last_one) {
  Random random(test_seed(24));
  constexpr std::int32_t kBad = 7;
  std::vector<TokenBatch> batches = {random_batch(random, kBatch, kSeq, kVocabulary),
                                     random_batch(random, kBatch, kSeq, kVocabulary)};
  for (TokenBatch& batch : batches) {
    std::replace(batch.input_ids.begin(), batch.input_ids.end(), kBad, 0);
  }
  batches[0].input_ids[2] = kBad;
  const auto backend = make_emulated_backend();
  Model model = tiny_model();
  model.lm_head = random_model(tiny_config(), 6, {}).embedding;  // untied: the head stays finite
  model.config.tie_word_embeddings = false;
  model.embedding.view().as<float>()[kBad * model.config.hidden_size] =
      std::numeric_limits<float>::quiet_NaN();
  model = place_model(std::move(model), *backend);
  Trainer trainer(model, step_options(GraphMode::kRequired, 2), *backend);
  trainer.initialise(3);
  const StepResult result = trainer.step(batches, 1e-2);
  BOOST_TEST(!result.finite);
  BOOST_TEST(result.bad_node.find("embedding_forward") != std::string::npos, result.bad_node);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
