// Warp collectives: every lane of the mask brings a pointer to its operands, the last one runs the
// operation for all.
#include <algorithm>
#include <cstdio>

#include "kernels/simt/block_runner.h"
#include "kernels/simt/names.h"

namespace reprise::simt {
namespace {

std::string hex(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

bool has(unsigned mask, unsigned lane) { return (mask >> lane & 1u) != 0; }

// The lane that `lane` reads from; a lane outside of its segment means its own value.
unsigned source_lane(WarpOp op, unsigned lane, int argument, int width) {
  const int self = static_cast<int>(lane);
  const int first = self & ~(width - 1);
  int source = self;
  if (op == WarpOp::kShuffle) return static_cast<unsigned>(first + (argument & (width - 1)));
  if (op == WarpOp::kShuffleUp) source = self - argument;
  if (op == WarpOp::kShuffleDown) source = self + argument;
  if (op == WarpOp::kShuffleXor) source = self ^ argument;
  // An xor may read an earlier segment, never a later one.
  const int lowest = op == WarpOp::kShuffleXor ? 0 : first;
  return static_cast<unsigned>(source < lowest || source >= first + width ? self : source);
}

template <WarpOp kOp>
void exchange(void* const* operands, unsigned mask) {
  std::array<std::uint64_t, kWarpLanes> values{};
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (has(mask, lane)) values[lane] = static_cast<ShuffleOperand*>(operands[lane])->value;
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (!has(mask, lane)) continue;
    ShuffleOperand& mine = *static_cast<ShuffleOperand*>(operands[lane]);
    const unsigned source = source_lane(kOp, lane, mine.argument, mine.width);
    if (!has(mask, source)) {
      fail_thread(mine.where, std::string(op_name(kOp)) + ": lane " + std::to_string(lane) +
                                  " reads lane " + std::to_string(source) +
                                  ", which is not in the mask " + hex(mask));
    }
    mine.value = values[source];
  }
}

struct VoteOperand {
  bool predicate;
  unsigned ballot;
};

void count_votes(void* const* operands, unsigned mask) {
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (has(mask, lane) && static_cast<VoteOperand*>(operands[lane])->predicate) {
      ballot |= 1u << lane;
    }
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (has(mask, lane)) static_cast<VoteOperand*>(operands[lane])->ballot = ballot;
  }
}

}  // namespace

void warp_collective(WarpOp op, unsigned mask, void* operand, WarpStep step, Place where) {
  current_block(op_name(op)).collective(op, mask, operand, step, where);
}

unsigned warp_vote(unsigned mask, bool predicate, Place where) {
  VoteOperand operand{predicate, 0};
  warp_collective(WarpOp::kVote, mask, &operand, count_votes, where);
  return operand.ballot;
}

void warp_shuffle(WarpOp op, unsigned mask, ShuffleOperand& operand) {
  const int width = operand.width;
  if (width < 1 || width > static_cast<int>(kWarpLanes) || (width & (width - 1)) != 0) {
    fail_thread(operand.where, std::string(op_name(op)) + ": the width " + std::to_string(width) +
                                   " is no power of two up to 32");
  }
  WarpStep step = exchange<WarpOp::kShuffle>;
  if (op == WarpOp::kShuffleUp) step = exchange<WarpOp::kShuffleUp>;
  if (op == WarpOp::kShuffleDown) step = exchange<WarpOp::kShuffleDown>;
  if (op == WarpOp::kShuffleXor) step = exchange<WarpOp::kShuffleXor>;
  warp_collective(op, mask, &operand, step, operand.where);
}

void BlockRunner::check_mask(WarpOp op, unsigned mask, Place where) {
  const Warp& warp = warps_[current_->warp()];
  const std::string what = op_name(op);
  if (!has(mask, current_->lane())) {
    fail(where, what + ": lane " + std::to_string(current_->lane()) + " is not in its own mask " +
                    hex(mask));
  }
  if ((mask & warp.exited) != 0) {
    fail(where, what + ": the mask " + hex(mask) + " names lane " +
                    std::to_string(__builtin_ctz(mask & warp.exited)) +
                    ", which has left the kernel");
  }
}

Meeting& BlockRunner::meeting_for(WarpOp op, unsigned mask, Place where) {
  Warp& warp = warps_[current_->warp()];
  for (unsigned open = warp.open; open != 0; open &= open - 1) {
    Meeting& meeting = warp.meetings[static_cast<unsigned>(__builtin_ctz(open))];
    if ((meeting.mask & mask) == 0) continue;
    if (meeting.op == op && meeting.mask == mask && same_place(meeting.where, where)) {
      return meeting;
    }
    fail(where, std::string("divergent warp: ") + op_name(op) + " with mask " + hex(mask) +
                    ", but lanes of it wait in " + op_name(meeting.op) + " with mask " +
                    hex(meeting.mask) + " at " + place_name(meeting.where));
  }
  const auto slot = static_cast<unsigned>(__builtin_ctz(~warp.open));
  warp.open |= 1u << slot;
  Meeting& meeting = warp.meetings[slot];
  meeting.op = op;
  meeting.mask = mask;
  meeting.arrived = 0;
  meeting.where = where;
  return meeting;
}

void BlockRunner::collective(WarpOp op, unsigned mask, void* operand, WarpStep step, Place where) {
  Thread& me = *current_;
  Warp& warp = warps_[me.warp()];
  // A last warp that is not full may name all lanes, as it may on a device.
  mask &= warp.lanes;
  if (!has(mask, me.lane()) || (mask & warp.exited) != 0) check_mask(op, mask, where);
  Meeting& meeting = meeting_for(op, mask, where);
  meeting.operands[me.lane()] = operand;
  meeting.arrived |= 1u << me.lane();
  me.where = where;
  me.op = op;
  if (meeting.arrived != mask) {
    me.state = ThreadState::kInWarp;
    wait_for_others();
    return;
  }
  if (step != nullptr) step(meeting.operands.data(), mask);
  warp.open &= ~(1u << static_cast<unsigned>(&meeting - warp.meetings.data()));
  for (unsigned others = mask & ~(1u << me.lane()); others != 0; others &= others - 1) {
    make_ready(threads_[me.warp() * kWarpLanes + static_cast<unsigned>(__builtin_ctz(others))]);
  }
}

}  // namespace reprise::simt
