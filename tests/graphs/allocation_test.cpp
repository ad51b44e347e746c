// Once captured, a step allocates nothing.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <new>

#include "tests/support/tiny_run.h"

namespace {
// Counts while switched on. Operator new is replaced for the whole program, as the standard allows.
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void* counted(std::size_t size) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

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
        allocations = 0;
        counting = true;
        trainer.step(batches, 1e-3);
        trainer.step(batches, 2e-3);
        counting = false;
        BOOST_TEST(allocations == 0);
      }
    }
  }
  // The counter itself works.
  counting = true;
  delete new int(1);
  counting = false;
  BOOST_TEST(allocations >= 1);
}

}  // namespace reprise::test
