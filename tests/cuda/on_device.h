// cuda_ops() behind the interface of a table for host memory: each run copies its operands to the
// device, runs there and brings the results back. What holds for reference_ops() can be asked of
// it.
#pragma once

#include <functional>
#include <vector>

#include "reprise/kernels/op_table.h"
#include "reprise/kernels/thread_pool.h"

namespace reprise::test {

OpTable on_device();

// All outputs of an op that a test runs on a table.
using Results = std::vector<std::vector<float>>;
using Op = std::function<Results(const OpTable&, ThreadPool&)>;

// The results of cuda_ops(); in every order of threads and blocks they must be the same bits.
Results in_every_order(const Op& op);

// Every result within `bound` of the reference's, relative and in the Euclidean norm.
void check_close(const Op& op, double bound);

// Not a bit differs from the reference.
void check_exact(const Op& op);

}  // namespace reprise::test
