// A fixed set of workers that blocks when idle. The caller is worker 0, so a pool of one thread
// starts none. Work is cut by index alone: the same count and thread number always give the same
// ranges, so a sum over ranges is reproducible.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace reprise {

// floor(min(cores in the affinity mask, cgroup CPU quota)), at least 1.
int available_threads();

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(worker) once on each worker, worker = 0 ... threads() - 1, and returns when all are
  // done. Allocates nothing. Not reentrant: body must not call the pool. body must not throw.
  template <class Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased([](void* context, int worker) { (*static_cast<Plain*>(context))(worker); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Cuts [0, count) into at most threads() contiguous ranges whose inner borders are multiples of
  // `grain`, and calls body(begin, end, worker) for each that is not empty.
  template <class Body>
  void parallel_ranges(std::int64_t count, std::int64_t grain, Body&& body) {
    const std::int64_t grains = (count + grain - 1) / grain;
    const std::int64_t workers = threads();
    run([&](int worker) {
      const std::int64_t begin = grains * worker / workers * grain;
      const std::int64_t end_grain = grains * (worker + 1) / workers * grain;
      const std::int64_t end = end_grain < count ? end_grain : count;
      if (begin < end) body(begin, end, worker);
    });
  }

  // Calls body(index, worker) for each index in [0, count); a free worker takes the next index. For
  // work of uneven cost whose result does not depend on who does it.
  template <class Body>
  void parallel_dynamic(std::int64_t count, Body&& body) {
    reset_counter();
    run([&](int worker) {
      for (std::int64_t i = next_index(); i < count; i = next_index()) body(i, worker);
    });
  }

 private:
  using Erased = void (*)(void* context, int worker);
  void run_erased(Erased body, void* context);
  void reset_counter();
  std::int64_t next_index();

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise
