// From the options of a run to those of one of its graphs.
#pragma once

#include "reprise/graphs/trainer.h"

namespace reprise {

struct TableDtypes {
  DType embedding = DType::kF32;
  DType head = DType::kF32;
};

StepOptions step_options(const TrainerOptions& options, StepKind kind, const TableDtypes& tables);

// kTrain, or kMicroStep with accumulation.
StepKind main_kind(const TrainerOptions& options);

// Bytes that --linear cached adds to the weights, and the most that making one of them takes.
std::int64_t cached_bytes(const ModelConfig& model, const TrainerOptions& options);

}  // namespace reprise
