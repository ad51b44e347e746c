// What one emulated thread asks of the block it runs in. Every question carries the place in the
// kernel's source that asks it, which names the two sides of a divergence in reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>

namespace reprise::simt {

using Place = std::source_location;

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kMaxBlockThreads = 1024;
inline constexpr unsigned kFullMask = 0xffffffffu;

enum class WarpOp : std::uint8_t {
  kSync,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kVote,
};

// What the last lane to come runs once for the whole warp: operands[lane] is what that lane
// brought. One dense loop for the warp instead of a slice per lane.
using WarpStep = void (*)(void* const* operands, unsigned mask);

void warp_collective(WarpOp op, unsigned mask, void* operand, WarpStep step, Place where);
unsigned warp_vote(unsigned mask, bool predicate, Place where);

struct ShuffleOperand {
  std::uint64_t value;  // what the lane gives, and after the collective what it gets
  int argument;         // source lane, delta or xor mask
  int width;
  Place where;
};
void warp_shuffle(WarpOp op, unsigned mask, ShuffleOperand& operand);

enum class Reduction : std::uint8_t { kAny, kAll, kCount };
void block_barrier(Place where);
int block_reduce(Reduction kind, bool predicate, Place where);

void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment,
                      Place where = Place::current());
void* dynamic_shared(Place where = Place::current());

// Ends the launch with this text; the host sees cudaErrorLaunchFailure.
[[noreturn]] void fail_thread(Place where, const std::string& text);

}  // namespace reprise::simt
