// The seam between a step graph and the kernels: for each op an ordered list of implementations,
// the preferred one first and the plain one last.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reprise/kernels/execution.h"
#include "reprise/kernels/ops/adamw.h"
#include "reprise/kernels/ops/attention.h"
#include "reprise/kernels/ops/cross_entropy.h"
#include "reprise/kernels/ops/embedding.h"
#include "reprise/kernels/ops/grad_norm.h"
#include "reprise/kernels/ops/linear_nf4.h"
#include "reprise/kernels/ops/lora.h"
#include "reprise/kernels/ops/residual.h"
#include "reprise/kernels/ops/rms_norm.h"
#include "reprise/kernels/ops/rope.h"
#include "reprise/kernels/ops/swiglu.h"
#include "reprise/kernels/support.h"

namespace reprise {

// One way to compute an op.
template <class Args>
struct Implementation {
  const char* name = "";  // "cpu.avx512_bf16.fused", printed in plans and graphs
  // Whether it can run these arguments; looks at types, dimensions and options, never at data.
  Support (*supports)(const Args&) = nullptr;
  // Bytes that args.scratch must have; 64-byte aligned. Null: none.
  std::int64_t (*scratch_bytes)(const Args&, int threads) = nullptr;
  // Runs. Allocates nothing, does not wait for a device, reads nothing back to the host.
  void (*run)(const Args&, const Execution&) = nullptr;
};

template <class Args>
using Implementations = std::vector<Implementation<Args>>;

// A backend fills every list; an op that is missing is refused when a graph is prepared.
struct OpTable {
  Implementations<EmbeddingForwardArgs> embedding_forward;
  Implementations<RmsNormForwardArgs> rms_norm_forward;
  Implementations<RmsNormBackwardArgs> rms_norm_backward;
  Implementations<LinearNf4ForwardArgs> linear_nf4_forward;
  Implementations<LinearNf4BackwardArgs> linear_nf4_backward;
  Implementations<LoraBackwardArgs> lora_backward;
  Implementations<RopeArgs> rope;
  Implementations<AttentionForwardArgs> attention_forward;
  Implementations<AttentionBackwardArgs> attention_backward;
  Implementations<SwigluForwardArgs> swiglu_forward;
  Implementations<SwigluBackwardArgs> swiglu_backward;
  Implementations<ResidualArgs> residual;
  Implementations<CrossEntropyArgs> cross_entropy;
  Implementations<LmHeadArgs> lm_head;
  Implementations<GradNormArgs> grad_norm;
  Implementations<ClipArgs> clip;
  Implementations<AdamWArgs> adamw;
  Implementations<FillArgs> fill;
};

// The first implementation that supports the arguments. Throws Error naming each refusal.
template <class Args>
const Implementation<Args>& select(const Implementations<Args>& list, const Args& args,
                                   const char* op) {
  std::string reasons;
  for (const Implementation<Args>& candidate : list) {
    const Support support = candidate.supports(args);
    if (support.ok()) return candidate;
    reasons += std::string("\n  ") + candidate.name + ": " + support.reason();
  }
  throw Error(std::string("no implementation of ") + op + " supports these arguments:" + reasons);
}

// Plain loops in double precision: the oracle of every test, complete for every legal argument.
OpTable reference_ops();

}  // namespace reprise
