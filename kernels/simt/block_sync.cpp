// Barriers of a block, and what becomes of threads that leave.
#include <map>

#include "kernels/simt/block_runner.h"
#include "kernels/simt/names.h"

namespace reprise::simt {

std::string place_name(Place where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

bool same_place(Place a, Place b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::string_view(a.file_name()) == b.file_name();
}

const char* op_name(WarpOp op) {
  switch (op) {
    case WarpOp::kSync:
      return "__syncwarp";
    case WarpOp::kShuffle:
      return "__shfl_sync";
    case WarpOp::kShuffleUp:
      return "__shfl_up_sync";
    case WarpOp::kShuffleDown:
      return "__shfl_down_sync";
    case WarpOp::kShuffleXor:
      return "__shfl_xor_sync";
    case WarpOp::kVote:
      return "a vote";
  }
  return "?";
}

void block_barrier(Place where) { current_block("__syncthreads").barrier(where); }

int block_reduce(Reduction kind, bool predicate, Place where) {
  return current_block("__syncthreads_count").reduce(kind, predicate, where);
}

void fail_thread(Place where, const std::string& text) {
  current_block("a device function").fail(where, text);
}

void BlockRunner::barrier(Place where) {
  Thread& me = *current_;
  if (done_ > 0) {
    fail(where, "a barrier after " + std::to_string(done_) + " threads have left the kernel");
  }
  if (waiting_ > 0 && !same_place(where, barrier_place_)) {
    fail(where, "divergent barrier: " + std::to_string(waiting_) + " threads wait at " +
                    place_name(barrier_place_));
  }
  const Warp& warp = warps_[me.warp()];
  for (unsigned open = warp.open; open != 0; open &= open - 1) {
    const Meeting& meeting = warp.meetings[static_cast<unsigned>(__builtin_ctz(open))];
    if ((meeting.mask >> me.lane() & 1u) != 0) {
      fail(where, std::string("a barrier, but the warp waits for this lane in ") +
                      op_name(meeting.op) + " at " + place_name(meeting.where));
    }
  }
  barrier_place_ = where;
  me.where = where;
  if (++waiting_ < threads_.size()) {
    me.state = ThreadState::kAtBarrier;
    wait_for_others();
    return;
  }
  waiting_ = 0;
  for (Thread& thread : threads_) {
    if (&thread != &me) make_ready(thread);
  }
  // The last to come goes on only when it is picked, or it would always be the first.
  make_ready(me);
  continue_with(*pick());
}

int BlockRunner::reduce(Reduction kind, bool predicate, Place where) {
  true_count_ += predicate ? 1u : 0u;
  if (++counted_ == threads_.size()) {
    reduced_ = true_count_;
    counted_ = true_count_ = 0;
  }
  barrier(where);
  const unsigned count = reduced_;
  // Nobody brings a next predicate before all have read this result.
  barrier(where);
  if (kind == Reduction::kCount) return static_cast<int>(count);
  return kind == Reduction::kAny ? count > 0 : count == threads_.size();
}

void BlockRunner::finish_thread() {
  Thread& me = *current_;
  me.state = ThreadState::kDone;
  ++done_;
  Warp& warp = warps_[me.warp()];
  warp.exited |= 1u << me.lane();
  if (waiting_ > 0) {
    fail(barrier_place_, "this thread left the kernel while " + std::to_string(waiting_) +
                             " threads wait at this barrier");
  }
  for (unsigned open = warp.open; open != 0; open &= open - 1) {
    const Meeting& meeting = warp.meetings[static_cast<unsigned>(__builtin_ctz(open))];
    if ((meeting.mask >> me.lane() & 1u) != 0) {
      fail(meeting.where, "lane " + std::to_string(me.lane()) +
                              " left the kernel while its warp waits for it in " +
                              op_name(meeting.op));
    }
  }
}

std::string BlockRunner::where_all_are() const {
  std::map<std::string, unsigned> held;
  for (const Thread& thread : threads_) {
    if (thread.state == ThreadState::kAtBarrier) {
      ++held["at the barrier " + place_name(thread.where)];
    } else if (thread.state == ThreadState::kInWarp) {
      ++held[std::string("in ") + op_name(thread.op) + " " + place_name(thread.where)];
    }
  }
  std::string text = std::to_string(done_) + " of " + std::to_string(threads_.size()) +
                     " threads have left the kernel";
  for (const auto& [what, count] : held) text += ", " + std::to_string(count) + " wait " + what;
  return text;
}

}  // namespace reprise::simt
