// Blocks, threads and the order in which they run.
#include "kernels/simt/block_runner.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

uint3 threadIdx{0, 0, 0};
uint3 blockIdx{0, 0, 0};
dim3 blockDim;
dim3 gridDim;

namespace reprise::simt {
namespace {

BlockRunner* running = nullptr;

// Unwinds a thread that has failed up to the start of its kernel.
struct ThreadFailure {};

void fiber_main(boost::context::detail::transfer_t from) {
  Fiber::enter(from);
  running->work();
}

// A kernel run alone finds most races of blocks through their order, so that is a setting as well.
std::uint64_t block_at(std::uint64_t step, std::uint64_t count, std::uint64_t stride) {
  switch (settings().order) {
    case Order::kFifo:
      return step;
    case Order::kReverse:
      return count - 1 - step;
    case Order::kRandom:
      break;
  }
  return step * stride % count;
}

// A number without common divisor with `count`: its multiples visit every block once.
std::uint64_t random_stride(std::uint64_t count) {
  std::uint64_t stride = 1 + random_below(count);
  while (std::gcd(stride, count) != 1) stride = stride % count + 1;
  return stride;
}

std::string coordinates(unsigned x, unsigned y, unsigned z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

}  // namespace

std::string run_grid(const GridLaunch& launch) {
  static BlockRunner runner;
  return runner.run(launch);
}

BlockRunner* running_block() { return running; }

BlockRunner& current_block(const char* what) {
  if (running == nullptr) throw std::logic_error(std::string(what) + " outside of a kernel");
  return *running;
}

std::string BlockRunner::run(const GridLaunch& launch) {
  failure_.clear();
  prepare(launch);
  running = this;
  const std::uint64_t count =
      static_cast<std::uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
  const std::uint64_t stride = settings().order == Order::kRandom ? random_stride(count) : 1;
  for (std::uint64_t step = 0; step < count && failure_.empty(); ++step) {
    run_block(block_at(step, count, stride));
  }
  running = nullptr;
  if (!failure_.empty()) {
    // Whatever the fibers were about will never be continued.
    idle_.clear();
    for (const auto& fiber : fibers_) {
      fiber->restart();
      idle_.push_back(fiber.get());
    }
  }
  return failure_;
}

void BlockRunner::prepare(const GridLaunch& launch) {
  launch_ = launch;
  gridDim = launch.grid;
  blockDim = launch.block;
  const unsigned count = launch.block.x * launch.block.y * launch.block.z;
  threads_.assign(count, Thread{});
  for (unsigned number = 0; number < count; ++number) {
    Thread& thread = threads_[number];
    thread.number = number;
    thread.index = {number % launch.block.x, number / launch.block.x % launch.block.y,
                    number / launch.block.x / launch.block.y};
  }
  for (unsigned warp = 0; warp * kWarpLanes < count; ++warp) {
    const unsigned lanes = std::min(count - warp * kWarpLanes, kWarpLanes);
    warps_[warp].lanes = kFullMask >> (kWarpLanes - lanes);
  }
  variables_.clear();
  variable_bytes_ = 0;
  dynamic_ =
      launch.dynamic_bytes == 0 ? nullptr : std::make_unique<SharedBlock>(launch.dynamic_bytes, 16);
}

void BlockRunner::run_block(std::uint64_t number) {
  blockIdx = {static_cast<unsigned>(number % gridDim.x),
              static_cast<unsigned>(number / gridDim.x % gridDim.y),
              static_cast<unsigned>(number / gridDim.x / gridDim.y)};
  done_ = waiting_ = counted_ = true_count_ = 0;
  ready_head_ = ready_count_ = 0;
  for (Warp& warp : warps_) warp.open = warp.exited = 0;
  for (const auto& variable : variables_) variable.second->poison();
  if (dynamic_) dynamic_->poison();
  for (Thread& thread : threads_) {
    make_ready(thread);
    thread.state = ThreadState::kFresh;
    thread.fiber = nullptr;
  }
  current_ = pick();
  current_->fiber = free_fiber();
  threadIdx = current_->index;
  host_.switch_to(*current_->fiber);
}

// Runs the current thread to its end and picks the next one; false where the launch has failed.
bool BlockRunner::run_thread(Thread*& next) {
  try {
    launch_.kernel->call(launch_.function, launch_.arguments);
    finish_thread();
    next = pick();
    if (next == nullptr && done_ < threads_.size()) {
      fail(current_->where, "deadlock: " + where_all_are());
    }
    return true;
  } catch (const ThreadFailure&) {
  } catch (...) {
    describe_failure("an exception left the kernel");
  }
  return false;
}

void BlockRunner::work() {
  while (true) {
    Fiber* const here = current_->fiber;
    Thread* next = nullptr;
    if (!run_thread(next)) here->switch_to(host_);  // for good: run() restarts every fiber
    if (next == nullptr) {
      idle_.push_back(here);
      here->switch_to(host_);  // the block is done; whoever comes back has set current_
      continue;
    }
    current_ = next;
    threadIdx = next->index;
    if (next->state == ThreadState::kFresh) {
      next->fiber = here;  // a fresh thread takes over this stack
      next->state = ThreadState::kReady;
      continue;
    }
    idle_.push_back(here);
    here->switch_to(*next->fiber);
  }
}

Fiber* BlockRunner::free_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(fiber_main));
    return fibers_.back().get();
  }
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

Thread* BlockRunner::pick() {
  if (ready_count_ == 0) return nullptr;
  const auto slot = [](unsigned i) { return i % kMaxBlockThreads; };
  unsigned at = slot(ready_head_);
  if (settings().order == Order::kReverse) at = slot(ready_head_ + ready_count_ - 1);
  if (settings().order == Order::kRandom) {
    at = slot(ready_head_ + static_cast<unsigned>(random_below(ready_count_)));
  }
  const unsigned number = ready_[at];
  if (settings().order != Order::kReverse) {
    ready_[at] = ready_[slot(ready_head_)];
    ready_head_ = slot(ready_head_ + 1);
  }
  --ready_count_;
  return &threads_[number];
}

void BlockRunner::make_ready(Thread& thread) {
  thread.state = ThreadState::kReady;
  ready_[(ready_head_ + ready_count_++) % kMaxBlockThreads] = thread.number;
}

void BlockRunner::continue_with(Thread& next) {
  Thread& me = *current_;
  if (&next == &me) return;
  if (next.state == ThreadState::kFresh) {
    next.fiber = free_fiber();
    next.state = ThreadState::kReady;
  }
  current_ = &next;
  threadIdx = next.index;
  me.fiber->switch_to(*next.fiber);
}

void BlockRunner::wait_for_others() {
  Thread* const next = pick();
  if (next == nullptr) fail(current_->where, "deadlock: " + where_all_are());
  continue_with(*next);
}

std::string BlockRunner::thread_name(const Thread& thread) const {
  return "thread " + coordinates(thread.index.x, thread.index.y, thread.index.z);
}

void BlockRunner::describe_failure(const std::string& text) {
  failure_ += "kernel " + std::string(launch_.kernel->name) + ", block " +
              coordinates(blockIdx.x, blockIdx.y, blockIdx.z) + ", " + thread_name(*current_) +
              ": " + text;
}

void BlockRunner::fail(Place where, const std::string& text) {
  failure_ = std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": ";
  describe_failure(text);
  throw ThreadFailure();
}

void BlockRunner::abandon(const std::string& text) {
  describe_failure(text);
  current_->fiber->switch_to(host_);
  __builtin_unreachable();  // run() restarts every fiber after a failure
}

bool BlockRunner::stack_overrun(const void* address) const {
  return std::any_of(fibers_.begin(), fibers_.end(),
                     [&](const auto& fiber) { return fiber->overrun(address); });
}

}  // namespace reprise::simt
