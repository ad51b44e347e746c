// Runs the first implementation of an op, whether or not the op takes scratch.
#pragma once

#include "tests/kernels/nf4_layer.h"

namespace reprise::test {

// Scratch, where there is any, is guarded, poisoned and exactly of the size that was asked for.
template <class Args>
void run_op(const Implementations<Args>& list, Args args, ThreadPool& pool) {
  if constexpr (requires { args.scratch; }) {
    run_first(list, args, pool);
  } else {
    const Implementation<Args>& first = list.at(0);
    const Support support = first.supports(args);
    BOOST_REQUIRE_MESSAGE(support.ok(), first.name << ": " << support.reason());
    first.run(args, {.pool = &pool});
  }
}

}  // namespace reprise::test
