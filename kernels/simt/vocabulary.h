// CUDA's names for threads, barriers, warp collectives and atomics, mapped on the emulator's block.
//
// NOTE: threadIdx and its sisters are objects and no macros, since cudaLaunchConfig_t has members
// gridDim and blockDim.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/simt/block.h"

// CUDA's host headers turn these into attributes that g++ does not know.
#undef __launch_bounds__
#undef __constant__
#undef __shared__
#define __launch_bounds__(...)
// One object for all sources that include it: kernels only read constants.
#define __constant__ inline

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

inline void __syncthreads(reprise::simt::Place where = reprise::simt::Place::current()) {
  reprise::simt::block_barrier(where);
}
inline int __syncthreads_or(int predicate,
                            reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::block_reduce(reprise::simt::Reduction::kAny, predicate != 0, where);
}
inline int __syncthreads_and(int predicate,
                             reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::block_reduce(reprise::simt::Reduction::kAll, predicate != 0, where);
}
inline int __syncthreads_count(int predicate,
                               reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::block_reduce(reprise::simt::Reduction::kCount, predicate != 0, where);
}
inline void __syncwarp(unsigned mask = reprise::simt::kFullMask,
                       reprise::simt::Place where = reprise::simt::Place::current()) {
  reprise::simt::warp_collective(reprise::simt::WarpOp::kSync, mask, nullptr, nullptr, where);
}
// One host thread runs all emulated threads, so every store is seen at once.
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace reprise::simt {

template <class T>
T shuffle(WarpOp op, unsigned mask, T value, ShuffleOperand operand) {
  static_assert(sizeof(T) <= sizeof(operand.value) && std::is_trivially_copyable_v<T>);
  std::memcpy(&operand.value, &value, sizeof value);
  warp_shuffle(op, mask, operand);
  std::memcpy(static_cast<void*>(&value), &operand.value, sizeof value);
  return value;
}

}  // namespace reprise::simt

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::shuffle(reprise::simt::WarpOp::kShuffle, mask, value,
                                {0, source, width, where});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::shuffle(reprise::simt::WarpOp::kShuffleUp, mask, value,
                                {0, static_cast<int>(delta), width, where});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::shuffle(reprise::simt::WarpOp::kShuffleDown, mask, value,
                                {0, static_cast<int>(delta), width, where});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::shuffle(reprise::simt::WarpOp::kShuffleXor, mask, value,
                                {0, lane_mask, width, where});
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::warp_vote(mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::warp_vote(mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      reprise::simt::Place where = reprise::simt::Place::current()) {
  return reprise::simt::warp_vote(mask, predicate == 0, where) == 0;
}

// Atomic by construction: no emulated thread is interrupted between two of its collectives.
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = value;
  return old;
}
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, static_cast<T>(*address + value));
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, *address < value ? value : *address);
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, value < *address ? value : *address);
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return atomicExch(address, *address == expected ? value : *address);
}
