// Trains the adapter of a small random model on one batch, through installed headers only.
#include <cstdio>
#include <vector>

#include "reprise/graphs/trainer.h"
#include "reprise/kernels/thread_pool.h"
#include "reprise/runtime/backend.h"
#include "reprise/runtime/model.h"

int main() {
  using namespace reprise;
  const Model model = random_model(find_shape("tiny")->config, 1, {.compute = ComputeType::kF32});
  const auto backend = make_cpu_backend(
      {.isa = detect_isa(), .linear = LinearMode::kFused, .threads = available_threads()});

  TrainerOptions options;
  options.shape = {.batch = 1, .seq = 16};
  options.lora = {.rank = 4, .alpha = 8};
  Trainer trainer(model, options, *backend);
  trainer.initialise(1);

  TokenBatch batch{.batch = 1, .seq = 16, .input_ids = {}, .labels = {}, .real_tokens = 16};
  for (std::int32_t t = 0; t < 16; ++t) batch.input_ids.push_back(t % 5);
  batch.labels = batch.input_ids;

  const double first = trainer.step({&batch, 1}, 1e-2).loss;
  double last = first;
  for (int step = 2; step <= 5; ++step) last = trainer.step({&batch, 1}, 1e-2).loss;
  std::printf("loss fell from %.4f to %.4f\n", first, last);
  return last < first ? 0 : 1;
}
