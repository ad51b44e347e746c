// The step as a whole: replay against eager, accumulation, masking, evaluation, non-finite values.
#include "reprise/graphs/trainer.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/graphs/trainer_run.h"

namespace reprise::test {
namespace {

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / norm);
}

double changing_rate(int step) { return 1e-3 * (1 + step % 5); }

// Runs `steps` steps on fresh batches and returns losses, then parameters.
std::vector<float> trace(Run& run, int steps, std::uint8_t poison) {
  Random random(99);
  std::vector<float> out;
  for (int i = 0; i < steps; ++i) {
    const TokenBatch batch = random_batch(random, 2, 9, 61);
    run.trainer.poison_activations(poison);
    const StepResult result = run.trainer.step({&batch, 1}, changing_rate(i));
    BOOST_TEST_REQUIRE(result.finite);
    out.push_back(static_cast<float>(result.loss));
    out.push_back(static_cast<float>(result.grad_norm));
  }
  const std::vector<float> params = run.params();
  out.insert(out.end(), params.begin(), params.end());
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(replay_equals_eager_bit_for_bit) {
  for (const NamedBackend& where : test_backends()) {
    for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
      BOOST_TEST_CONTEXT(where.name << " " << name_of(compute)) {
        TrainerOptions options = tiny_options(2, 9);
        options.compute = compute;
        options.lora.dropout = 0.25;
        options.graph = GraphMode::kOff;
        Run eager(where, options, tiny_model(compute));
        options.graph = GraphMode::kRequired;
        Run replayed(where, options, tiny_model(compute));
        const int steps = where.name == "reference" ? 4 : 20;
        // Poisoned with zeros in one run and with NaN patterns in the other: whatever is read
        // before it is written shows.
        BOOST_TEST(same_bits(trace(eager, steps, 0x00), trace(replayed, steps, 0xff)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(four_micro_batches_equal_one_batch_of_four) {
  Random random(test_seed(4));
  for (const NamedBackend& where : test_backends()) {
    BOOST_TEST_CONTEXT(where.name) {
      TrainerOptions options = tiny_options(4, 7);
      Run whole(where, options);
      options.shape = {.batch = 1, .seq = 7, .accumulate = 4};
      Run split(where, options);
      for (int i = 0; i < 3; ++i) {
        std::vector<TokenBatch> parts;
        for (int j = 0; j < 4; ++j) parts.push_back(random_batch(random, 1, 7, 61));
        // Unequal numbers of targets: the mean of means would differ.
        for (std::size_t t = 2; t < 7; ++t) parts[0].labels[t] = kIgnoredLabel;
        const TokenBatch all = stack(parts);
        const StepResult a = whole.trainer.step({&all, 1}, 1e-3);
        const StepResult b = split.trainer.step(parts, 1e-3);
        BOOST_TEST(a.target_tokens == b.target_tokens);
        // The same sums in another order: a few roundings of FP32.
        BOOST_TEST(std::abs(a.loss - b.loss) <= 1e-6 * std::abs(a.loss));
        BOOST_TEST(std::abs(a.grad_norm - b.grad_norm) <= 1e-5 * a.grad_norm);
      }
      // AdamW divides by the root of the second moment, which turns the rounding of a gradient
      // near zero into a visible share of one update of size lr = 1e-3; so compare the whole.
      BOOST_TEST(relative_distance(split.params(), whole.params()) < 1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(masked_batches_change_no_gradient) {
  Random random(test_seed(6));
  for (const NamedBackend& where : test_backends()) {
    BOOST_TEST_CONTEXT(where.name) {
      Run run(where, tiny_options(1, 7));
      TokenBatch masked = random_batch(random, 1, 7, 61);
      masked.labels.assign(7, kIgnoredLabel);
      const std::vector<float> before = run.params();
      const StepResult result = run.trainer.step({&masked, 1}, 1e-2);
      BOOST_TEST(result.loss == 0);
      BOOST_TEST(result.grad_norm == 0);
      BOOST_TEST(result.finite);
      BOOST_TEST(result.target_tokens == 0);
      BOOST_TEST(same_bits(run.params(), before));
    }
  }
}

BOOST_AUTO_TEST_CASE(evaluation_between_steps_changes_nothing) {
  for (const NamedBackend& where : test_backends()) {
    BOOST_TEST_CONTEXT(where.name) {
      Run plain(where, tiny_options(2, 9)), evaluated(where, tiny_options(2, 9));
      Random random(test_seed(8));
      for (int i = 0; i < 4; ++i) {
        const TokenBatch batch = random_batch(random, 2, 9, 61);
        const TokenBatch other = random_batch(random, 1, 6, 61);
        const StepResult a = plain.trainer.step({&batch, 1}, 1e-3);
        const EvaluationResult same = evaluated.trainer.evaluate(batch);
        evaluated.trainer.evaluate(other);
        evaluated.trainer.next_logits(std::span(batch.input_ids).first(5));
        const StepResult b = evaluated.trainer.step({&batch, 1}, 1e-3);
        BOOST_TEST(a.loss == b.loss);
        // The loss of the step is the mean of what evaluation sums up, rounded to FP32 once more.
        const double mean = same.nll_sum / static_cast<double>(same.target_tokens);
        BOOST_TEST(std::abs(mean - b.loss) <= 1e-6 * mean);
      }
      BOOST_TEST(same_bits(plain.params(), evaluated.params()));
    }
  }
}

BOOST_AUTO_TEST_CASE(values_that_are_not_finite_are_named_and_never_applied) {
  Random random(test_seed(10));
  const TokenBatch batch = random_batch(random, 1, 7, 61);
  for (const NamedBackend& where : test_backends()) {
    for (const float planted :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const std::int64_t accumulate : {1, 2}) {
        BOOST_TEST_CONTEXT(where.name << " accumulate " << accumulate) {
          Model model = tiny_model();
          model.layers[1].post_attention_norm.view().as<float>()[5] = planted;
          TrainerOptions options = tiny_options(1, 7);
          options.shape.accumulate = accumulate;
          Run run(where, options, std::move(model));
          const std::vector<float> before = run.params();
          const std::vector<TokenBatch> parts(static_cast<std::size_t>(accumulate), batch);
          const StepResult result = run.trainer.step(parts, 1e-2);
          BOOST_TEST(!result.finite);
          BOOST_TEST(result.bad_node.find("layers.1. rms_norm_forward") == 0u, result.bad_node);
          BOOST_TEST(same_bits(run.params(), before));
          BOOST_TEST(run.trainer.steps_done() == 0);
          // Once the weight is repaired, nothing of the bad step is left: neither in gradients nor
          // in moments.
          run.model.layers[1].post_attention_norm.view().as<float>()[5] = 1;
          const StepResult repaired = run.trainer.step(parts, 1e-2);
          Model clean_model = tiny_model();
          clean_model.layers[1].post_attention_norm.view().as<float>()[5] = 1;
          Run clean(where, options, std::move(clean_model));
          BOOST_TEST(repaired.loss == clean.trainer.step(parts, 1e-2).loss);
          BOOST_TEST(same_bits(run.params(), clean.params()));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(dropout_draws_anew_at_every_replay) {
  Random random(test_seed(12));
  const TokenBatch batch = random_batch(random, 2, 9, 61);
  for (const NamedBackend& where : test_backends()) {
    BOOST_TEST_CONTEXT(where.name) {
      TrainerOptions options = tiny_options(2, 9);
      Run plain(where, options);
      options.lora.dropout = 0.5;
      Run dropping(where, options);
      // With a learning rate of zero only the masks change from step to step.
      const double first = plain.trainer.step({&batch, 1}, 0).loss;
      BOOST_TEST(plain.trainer.step({&batch, 1}, 0).loss == first);
      const double a = dropping.trainer.step({&batch, 1}, 0).loss;
      const double b = dropping.trainer.step({&batch, 1}, 0).loss;
      BOOST_TEST(a != b);
      BOOST_TEST(a != first);
      // Evaluation drops nothing.
      BOOST_TEST(plain.trainer.evaluate(batch).nll_sum == dropping.trainer.evaluate(batch).nll_sum);
    }
  }
}

BOOST_AUTO_TEST_CASE(pruning_changes_no_bit) {
  for (const NamedBackend& where : test_backends()) {
    BOOST_TEST_CONTEXT(where.name) {
      TrainerOptions options = tiny_options(2, 9);
      Run whole(where, options);
      options.prune = true;
      Run pruned(where, options);
      BOOST_TEST(same_bits(trace(whole, 3, 0xff), trace(pruned, 3, 0xff)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_batch_is_overfitted) {
  Random random(test_seed(14));
  const TokenBatch batch = random_batch(random, 2, 9, 61);
  for (const NamedBackend& where : test_backends()) {
    if (where.name == "reference") continue;  // 150 steps take too long there
    for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
      BOOST_TEST_CONTEXT(where.name << " " << name_of(compute)) {
        TrainerOptions options = tiny_options(2, 9);
        options.compute = compute;
        options.lora.rank = 16;
        options.lora.alpha = 32;
        Model model = tiny_model(compute);
        // Rows of the head have length 1 and normed hidden states sqrt(48): no logit would exceed
        // 6.9, which leaves a loss of about 0.08 among 61 tokens, however well it is learned.
        float* const weight = model.final_norm.view().as<float>();
        for (std::int64_t c = 0; c < model.config.hidden_size; ++c) weight[c] *= 3;
        Run run(where, options, std::move(model));
        double loss = 0;
        for (int i = 0; i < 150; ++i) loss = run.trainer.step({&batch, 1}, 5e-3).loss;
        BOOST_TEST(loss < 0.05);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(next_logits_are_those_of_the_dump) {
  Random random(test_seed(18));
  const TokenBatch batch = random_batch(random, 1, 9, 61);
  for (const NamedBackend& where : test_backends()) {
    BOOST_TEST_CONTEXT(where.name) {
      Run run(where, tiny_options(1, 9));
      const auto dump = run.trainer.dump(batch);
      const auto found = std::find_if(dump.begin(), dump.end(),
                                      [](const auto& entry) { return entry.first == "logits"; });
      BOOST_REQUIRE(found != dump.end());
      {
        const Tensor& tensor = found->second;
        BOOST_TEST((tensor.dims == Dims({1, 9, 61})));
        const std::vector<float> next = run.trainer.next_logits(batch.input_ids);
        const float* last = tensor.view().as<float>() + 8 * 61;
        // Another number of rows may take another path through the kernels: a few roundings.
        BOOST_TEST(relative_distance(next, {last, last + 61}) < 1e-6);
      }
    }
  }
}

}  // namespace reprise::test
