// Runs the blocks of a grid one after another, and the threads of a block in turns: a thread runs
// until a barrier or a warp collective holds it. Threads that are never held share one stack, so a
// kernel without barriers costs no switch per thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/simt/block.h"
#include "kernels/simt/fiber.h"
#include "kernels/simt/kernel_table.h"
#include "kernels/simt/settings.h"
#include "vector_types.h"

namespace reprise::simt {

struct GridLaunch {
  const KernelEntry* kernel;
  const void* function;
  void* const* arguments;
  dim3 grid;
  dim3 block;
  std::size_t dynamic_bytes;
};

// What is wrong, or empty where the grid ran to its end.
std::string run_grid(const GridLaunch& launch);

// Static and dynamic shared memory that a block may have together, and static alone.
inline constexpr std::size_t kMaxSharedBytes = 163 << 10;
inline constexpr std::size_t kMaxStaticSharedBytes = 48 << 10;

enum class ThreadState : std::uint8_t { kFresh, kReady, kAtBarrier, kInWarp, kDone };

struct Thread {
  uint3 index;
  unsigned number;  // x fastest
  ThreadState state;
  WarpOp op;
  Fiber* fiber;  // null until it has started
  Place where;   // what holds it
  unsigned warp() const { return number / kWarpLanes; }
  unsigned lane() const { return number % kWarpLanes; }
};

// A warp collective that some of its lanes have reached.
struct Meeting {
  WarpOp op;
  unsigned mask = 0;
  unsigned arrived = 0;
  Place where;
  std::array<void*, kWarpLanes> operands;
};

struct Warp {
  std::array<Meeting, kWarpLanes> meetings;  // masks are disjoint, so there are no more
  unsigned open = 0;                         // one bit a meeting
  unsigned lanes = 0;                        // that the block has
  unsigned exited = 0;
};

// Memory of exactly the size and the alignment that was asked for: what needs more of either is a
// fault of the kernel, and sanitizers see the first byte behind it.
class SharedBlock {
 public:
  SharedBlock(std::size_t bytes, std::size_t alignment);
  void* data() const { return data_; }
  void poison();

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  unsigned char* data_;
  std::size_t bytes_;
};

class BlockRunner {
 public:
  std::string run(const GridLaunch& launch);

  void barrier(Place where);
  int reduce(Reduction kind, bool predicate, Place where);
  void collective(WarpOp op, unsigned mask, void* operand, WarpStep step, Place where);
  void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment, Place where);
  void* dynamic_shared(Place where);
  [[noreturn]] void fail(Place where, const std::string& text);
  // For a fault inside of an instruction, where nothing can be thrown: leaves the stack as it is.
  [[noreturn]] void abandon(const std::string& text);
  bool stack_overrun(const void* address) const;

  void work();  // what each fiber does, forever

 private:
  void prepare(const GridLaunch& launch);
  void run_block(std::uint64_t number);
  bool run_thread(Thread*& next);
  void describe_failure(const std::string& text);
  std::string where_all_are() const;
  std::string thread_name(const Thread& thread) const;
  Meeting& meeting_for(WarpOp op, unsigned mask, Place where);
  void check_mask(WarpOp op, unsigned mask, Place where);
  void finish_thread();
  Thread* pick();
  void make_ready(Thread& thread);
  void wait_for_others();
  void continue_with(Thread& next);
  Fiber* free_fiber();

  GridLaunch launch_{};
  std::vector<Thread> threads_;
  std::array<Warp, kMaxBlockThreads / kWarpLanes> warps_;
  std::array<unsigned, kMaxBlockThreads> ready_;  // a ring: nothing is allocated while threads run
  unsigned ready_head_ = 0;
  unsigned ready_count_ = 0;
  unsigned done_ = 0;
  unsigned waiting_ = 0;  // at the barrier
  unsigned counted_ = 0;  // that brought a predicate to block_reduce
  unsigned true_count_ = 0;
  unsigned reduced_ = 0;
  Place barrier_place_;
  Thread* current_ = nullptr;
  Fiber host_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::map<const void*, std::unique_ptr<SharedBlock>> variables_;
  std::size_t variable_bytes_ = 0;
  std::unique_ptr<SharedBlock> dynamic_;
  std::string failure_;
};

// The runner of the launch that runs now; throws std::logic_error where none does.
BlockRunner& current_block(const char* what);
// Null outside of a launch; for signal handlers.
BlockRunner* running_block();

}  // namespace reprise::simt
