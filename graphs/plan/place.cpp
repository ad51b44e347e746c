// Offsets in the arena: the largest lifetimes first, each at the lowest offset that is free during
// all of its life (the "greedy by size" of Pisarchyk and Lee, 2020).
#include <algorithm>
#include <numeric>

#include "reprise/graphs/plan.h"

namespace reprise {
namespace {

constexpr std::int64_t kAlignment = 64;  // a cache line and the widest vector

bool overlap_in_time(const Placement& a, const Placement& b) {
  return a.first <= b.last && b.first <= a.last;
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::int64_t place(std::vector<Placement>& placements) {
  std::vector<std::size_t> order(placements.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return placements[a].bytes > placements[b].bytes;
  });
  std::vector<std::size_t> placed;  // by offset
  std::int64_t arena = 0;
  for (const std::size_t index : order) {
    Placement& next = placements[index];
    std::int64_t offset = 0;
    for (const std::size_t other : placed) {
      const Placement& taken = placements[other];
      if (!overlap_in_time(next, taken)) continue;
      if (offset + next.bytes <= taken.offset) break;  // it fits into the gap before `taken`
      offset = std::max(offset, aligned(taken.offset + taken.bytes));
    }
    next.offset = offset;
    arena = std::max(arena, aligned(offset + next.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](std::size_t a, std::size_t b) {
                                     return placements[a].offset < placements[b].offset;
                                   }),
                  index);
  }
  return arena;
}

}  // namespace reprise
