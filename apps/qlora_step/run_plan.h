// Everything about a run that is decided before weights are loaded: the options with every default
// filled in, the model's shape, and what memory and which kernels the step needs.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "apps/qlora_step/options.h"
#include "apps/qlora_step/training_data.h"

namespace reprise::qlora_step {

struct RunPlan {
  ModelConfig model;
  std::string source;  // "SmolLM2.gguf", "shape tiny, seed 0"
  DType embedding_dtype = DType::kF32;
  TrainerOptions trainer;
  ScheduleOptions schedule;
  Device device = Device::kCpu;
  CpuBackendOptions backend;
};

// The model's shape and the name of where it comes from.
struct ModelSource {
  ModelConfig config;
  std::string name;
};
ModelSource model_source(const Options& options);

// From --adapter, or from the options and their defaults. Throws UsageError when an option
// contradicts the adapter.
LoraConfig resolve_lora(const Options& options);

// The instruction set to use: what the CPU has, or less when REPRISE_ISA in the environment names a
// lower one.
Isa resolve_isa();

std::unique_ptr<Backend> make_backend(const RunPlan& plan);

RunPlan make_run_plan(const Options& options, const ModelSource& source, const DataShape& data);

// Model, adapter, data, machine: a line each.
void print_plan(std::ostream& out, const RunPlan& plan, const std::string& backend,
                const std::string& data);

// For each graph and op its implementations and how many nodes each computes.
void print_kernels(std::ostream& out, const PlannedRun& run);

}  // namespace reprise::qlora_step
