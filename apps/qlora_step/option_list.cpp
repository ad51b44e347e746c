#include "apps/qlora_step/option_list.h"

#include <boost/program_options.hpp>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "apps/qlora_step/options.h"

namespace reprise::qlora_step {
namespace {

namespace po = boost::program_options;

constexpr unsigned kHelpColumns = 100;

po::typed_value<std::string>* text(const char* name) {
  return po::value<std::string>()->value_name(name);
}
po::typed_value<std::int64_t>* count(const char* name) {
  return po::value<std::int64_t>()->value_name(name);
}
po::typed_value<double>* real(const char* name) { return po::value<double>()->value_name(name); }

po::options_description model_and_data() {
  po::options_description group("Model and data", kHelpColumns);
  group.add_options()("model", text("PATH"),
                      "a folder with config.json and safetensors (F32, F16, BF16, or NF4 by "
                      "bitsandbytes), or a .gguf file")(
      "shape", text("NAME"),
      "random weights of a known shape instead, for timing and memory planning; 'help' lists them")(
      "data", text("FILE"),
      ".jsonl with {\"text\"}, {\"prompt\",\"completion\"} or {\"instruction\",\"response\"} a "
      "line (needs a .gguf model, whose tokenizer it uses); or .safetensors with input_ids and "
      "labels, int64 [B, T]: its rows are one step, used again each step")(
      "eval-data", text("FILE"), "like --data; its loss is measured before and after training")(
      "adapter", text("DIR"),
      "start from this PEFT adapter and take its rank, alpha, dropout and modules")(
      "seed", count("N")->default_value(0),
      "of adapters, dropout, the order of the data, and of everything made up");
  return group;
}

po::options_description training() {
  po::options_description group("Training", kHelpColumns);
  group.add_options()("steps", count("N"), "optimiser steps (default: 100)")(
      "batch", count("N"), "sequences in a micro-batch (default: 1, or as --data has it)")(
      "seq", count("N"), "tokens in a sequence (default: 512, or as --data has it)")(
      "accumulate", count("N")->default_value(1),
      "micro-batches in a step; each target token of a step counts alike")(
      "lr", real("X"), "learning rate (default: 2e-4)")(
      "schedule", text("NAME")->default_value("constant"), "constant, linear or cosine")(
      "warmup", count("N")->default_value(0), "steps over which the rate rises to --lr")(
      "beta1", real("X")->default_value(0.9, "0.9"), "AdamW")(
      "beta2", real("X")->default_value(0.999, "0.999"), "AdamW")(
      "eps", real("X")->default_value(1e-8, "1e-8"), "AdamW")(
      "weight-decay", real("X")->default_value(0, "0"), "AdamW, decoupled")(
      "clip", real("X")->default_value(1, "1"), "largest global gradient norm; 0: no clipping");
  return group;
}

po::options_description adapter() {
  po::options_description group("Adapter", kHelpColumns);
  group.add_options()("rank", count("N"), "LoRA rank (default: 16)")(
      "alpha", real("X"), "LoRA alpha; the update is scaled by alpha / rank (default: 32)")(
      "dropout", real("X"), "of the adapter's input (default: 0)")(
      "target-modules", text("LIST"),
      "comma-separated names: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj "
      "(default: all seven)");
  return group;
}

po::options_description machine() {
  po::options_description group("Machine", kHelpColumns);
  group.add_options()("device", text("NAME")->default_value("cpu"),
                      "cpu, or reference: plain loops in double precision, to check against")(
      "compute", text("TYPE"),
      "bf16 (products of bf16, sums in fp32) or fp32 (default: bf16 where the CPU multiplies it)")(
      "linear", text("MODE")->default_value("fused"),
      "the frozen projections: fused decodes NF4 inside the product; dequant (each time) and "
      "cached (once) go through a library GEMM, for comparison")(
      "projections", text("MODE")->default_value("separate"), "separate: seven products a layer")(
      "graph", text("MODE")->default_value("required"),
      "replay the captured step: required, auto (else eager, with the reason) or off (eager)")(
      "prune", text("ON|OFF")->default_value("off"),
      "leave out nodes that nothing reads: dX of q, k and v in the first layer")(
      "threads", count("N"), "workers (default: the CPUs this process may use)");
  return group;
}

po::options_description output() {
  po::options_description group("Output", kHelpColumns);
  group.add_options()("out", text("DIR"),
                      "gets adapter/ (PEFT), metrics.jsonl, config.json and summary.json")(
      "metrics", text("FILE.jsonl"), "one line a step (default with --out: DIR/metrics.jsonl)")(
      "graph-out", text("FILE"), "the step graph, as .json, .dot or .txt")(
      "dump", text("FILE.safetensors"),
      "run the first step unfused beforehand and write its tensors")(
      "sample", po::value<std::vector<std::string>>()->composing()->value_name("PROMPT"),
      "answer this before and after training, greedily; may be repeated (needs a .gguf model)")(
      "sample-tokens", count("N")->default_value(48), "most tokens of an answer")(
      "dry-run", po::bool_switch(),
      "print the memory plan and the kernels, write --graph-out, load no weights, and stop")(
      "quiet", po::bool_switch(), "print results and warnings only");
  return group;
}

po::options_description instead() {
  po::options_description group("Instead of training", kHelpColumns);
  group.add_options()("tokenize", text("FILE"), "print the token ids of a text file, and stop")(
      "eval-nll", text("FILE"), "print the mean negative log-likelihood of a text file, and stop")(
      "help,h", "print this text")("version", "print the version");
  return group;
}

constexpr const char* kUsage = R"(Usage: qlora_step [options]

Fine-tunes a Llama- or Qwen2-shaped language model by QLoRA: the weights are frozen in 4-bit NF4,
LoRA adapters are trained, and the whole step is one graph that is built once and replayed.
Without --model and --shape a small model made from a seed learns a made-up language.
)";

constexpr const char* kExamples = R"(
Examples:
  qlora_step
      the made-up model and language: needs no file, takes seconds
  qlora_step --model SmolLM2.gguf --data pairs.jsonl --steps 200 --seq 256 --lr 1e-3 --out run1
      fine-tune; the adapter is in run1/adapter
  qlora_step --model SmolLM2.gguf --data pairs.jsonl --adapter run1/adapter --out run2
      go on from that adapter
  qlora_step --shape qwen2.5-1.5b --seq 512 --steps 3
      time the step of a larger model on random weights
  qlora_step --shape llama3.1-8b --seq 1024 --dry-run --graph-out step.json
      would it fit, and what would run?

Exit codes: 0 done; 1 a defect in the program; 2 wrong usage; 3 bad or missing input; 4 does not fit
into memory or onto the disk; 5 a NaN or infinity turned up; 130 interrupted, after saving.
)";

}  // namespace

po::options_description option_list() {
  po::options_description all(kHelpColumns);
  all.add(model_and_data()).add(training()).add(adapter());
  all.add(machine()).add(output()).add(instead());
  return all;
}

void print_help(std::ostream& out) { out << kUsage << option_list() << kExamples; }

void print_shapes(std::ostream& out) {
  for (const NamedShape& shape : known_shapes()) {
    const ModelConfig& c = shape.config;
    out << shape.name << ": " << c.num_hidden_layers << " layers, hidden " << c.hidden_size
        << ", feed-forward " << c.intermediate_size << ", heads " << c.num_attention_heads << "/"
        << c.num_key_value_heads << ", vocabulary " << c.vocab_size << "\n";
  }
}

}  // namespace reprise::qlora_step
