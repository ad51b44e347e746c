// Once captured, a step allocates nothing.
#include <boost/test/unit_test.hpp>

#include "tests/support/counted_allocations.h"
#include "tests/support/tiny_run.h"

namespace reprise::test {

BOOST_AUTO_TEST_CASE(a_replayed_step_allocates_nothing) {
  Random random(test_seed(30));
  for (const NamedBackend& where : test_backends()) {
    for (const std::int64_t accumulate : {1, 2}) {
      BOOST_TEST_CONTEXT(where.name << " accumulate " << accumulate) {
        const Model model = random_model(tiny_config(), 5, {});
        const auto backend = where.make(LinearMode::kFused);
        TrainerOptions options = tiny_options(1, 9);
        options.shape.accumulate = accumulate;
        Trainer trainer(model, options, *backend);
        trainer.initialise(1);
        const std::vector<TokenBatch> batches(static_cast<std::size_t>(accumulate),
                                              random_batch(random, 1, 9, 61));
        trainer.step(batches, 1e-3);  // captures
        start_counting_allocations();
        trainer.step(batches, 1e-3);
        trainer.step(batches, 2e-3);
        BOOST_TEST(stop_counting_allocations().count == 0u);
      }
    }
  }
  // The counter itself works.
  start_counting_allocations();
  delete new int(1);
  BOOST_TEST(stop_counting_allocations().count >= 1u);
}

}  // namespace reprise::test
