// Workers that sleep between calls. A caller that finds them asleep pays one wake-up; a short spin
// avoids it when calls follow each other closely, as the nodes of a replayed graph do. The spin is
// bounded, so that a pool whose cores are taken by other processes costs them almost nothing.
#include "reprise/kernels/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/cpu/cgroup_quota.h"
#include "reprise/kernels/error.h"

namespace reprise {
namespace {

// About 20 to 50 microseconds: longer than the gap between two nodes, shorter than a time slice.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int available_threads() {
  const int cores = std::max(1, affinity_cores());
  const int quota = cpu::cgroup_cpu_limit("/");
  return quota > 0 ? std::min(cores, quota) : cores;
}

struct ThreadPool::State {
  int threads = 1;
  int spins = 0;
  std::mutex mutex;
  std::condition_variable work_ready, work_done;
  // `generation` numbers the calls; `pending` counts the workers that are not done with the latest.
  std::atomic<std::uint64_t> generation{0};
  std::atomic<int> pending{0};
  std::atomic<std::int64_t> counter{0};
  bool stopping = false;
  Erased body = nullptr;
  void* context = nullptr;
  std::vector<std::thread> workers;

  template <class Ready>
  bool spin(Ready&& ready) const {
    for (int i = 0; i < spins; ++i) {
      if (ready()) return true;
      pause();
    }
    return false;
  }

  void work(int worker) {
    for (std::uint64_t seen = 0;;) {
      const auto ready = [&] { return generation.load(std::memory_order_acquire) != seen; };
      if (!spin(ready)) {
        std::unique_lock lock(mutex);
        work_ready.wait(lock, ready);
      }
      seen = generation.load(std::memory_order_acquire);
      if (stopping) return;
      body(context, worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        work_done.notify_one();
      }
    }
  }

  void stop() {
    stopping = true;
    start_generation();
    for (std::thread& worker : workers) worker.join();
  }

  void start_generation() {
    {
      const std::lock_guard lock(mutex);
      generation.fetch_add(1, std::memory_order_release);
    }
    work_ready.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  require(threads >= 1, "a pool has at least one thread");
  state_->threads = threads;
  state_->spins = threads <= available_threads() ? kSpins : 0;
  for (int worker = 1; worker < threads; ++worker) {
    try {
      state_->workers.emplace_back([state = state_.get(), worker] { state->work(worker); });
    } catch (const std::system_error& error) {
      state_->stop();
      throw DoesNotFit("thread " + std::to_string(worker + 1) + " of " + std::to_string(threads) +
                       " cannot be started: " + error.what() + "; reduce --threads");
    }
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::threads() const { return state_->threads; }

void ThreadPool::run_erased(Erased body, void* context) {
  State& s = *state_;
  if (s.threads == 1) {
    body(context, 0);
    return;
  }
  s.body = body;
  s.context = context;
  s.pending.store(s.threads - 1, std::memory_order_relaxed);
  s.start_generation();
  body(context, 0);
  const auto done = [&] { return s.pending.load(std::memory_order_acquire) == 0; };
  if (!s.spin(done)) {
    std::unique_lock lock(s.mutex);
    s.work_done.wait(lock, done);
  }
}

void ThreadPool::reset_counter() { state_->counter.store(0, std::memory_order_relaxed); }

std::int64_t ThreadPool::next_index() {
  return state_->counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace reprise
