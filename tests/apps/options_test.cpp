// The command line of qlora_step: defaults, and what is refused.
#include "apps/qlora_step/options.h"

#include <boost/test/unit_test.hpp>
#include <initializer_list>
#include <sstream>
#include <vector>

#include "apps/qlora_step/run_plan.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::qlora_step {
namespace {

CommandLine parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv = {"qlora_step"};
  argv.insert(argv.end(), arguments);
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

struct Refused {
  std::vector<const char*> arguments;
  const char* text;  // of the message
};

BOOST_AUTO_TEST_SUITE(options)

BOOST_AUTO_TEST_CASE(defaults_are_the_documented_ones) {
  const Options o = parse({}).options;
  BOOST_CHECK(o.embedded_default());
  BOOST_CHECK_EQUAL(o.accumulate, 1);
  BOOST_CHECK_EQUAL(o.adamw.beta1, 0.9f);
  BOOST_CHECK_EQUAL(o.adamw.beta2, 0.999f);
  BOOST_CHECK_EQUAL(o.adamw.eps, 1e-8f);
  BOOST_CHECK_EQUAL(o.adamw.weight_decay, 0);
  BOOST_CHECK_EQUAL(o.clip, 1);
  BOOST_CHECK_EQUAL(o.warmup, 0);
  BOOST_CHECK(o.schedule == Schedule::kConstant);
  BOOST_CHECK(o.graph == GraphMode::kRequired);
  BOOST_CHECK(o.linear == LinearMode::kFused);
  BOOST_CHECK(!o.prune && !o.dry_run && !o.quiet);
  const LoraConfig lora = resolve_lora(o);
  BOOST_CHECK_EQUAL(lora.rank, 16);
  BOOST_CHECK_EQUAL(lora.dropout, 0);
  BOOST_CHECK_EQUAL(lora.target_modules.size(), 7);
}

BOOST_AUTO_TEST_CASE(modules_are_sorted_into_the_order_of_a_layer) {
  const Options o = parse({"--target-modules", "down_proj,q_proj"}).options;
  BOOST_CHECK((*o.target_modules == std::vector{Projection::kQ, Projection::kDown}));
}

BOOST_AUTO_TEST_CASE(requests_are_recognised) {
  BOOST_CHECK(parse({"--help"}).request == Request::kHelp);
  BOOST_CHECK(parse({"--shape", "help"}).request == Request::kListShapes);
  BOOST_CHECK(parse({"--version"}).request == Request::kVersion);
}

BOOST_AUTO_TEST_CASE(help_names_every_option) {
  std::ostringstream help;
  print_help(help);
  for (const char* name :
       {"model",          "shape",    "data",       "adapter", "out",      "steps",
        "batch",          "seq",      "accumulate", "rank",    "alpha",    "dropout",
        "target-modules", "lr",       "beta1",      "beta2",   "eps",      "weight-decay",
        "clip",           "schedule", "warmup",     "device",  "compute",  "linear",
        "projections",    "graph",    "graph-out",  "metrics", "dump",     "seed",
        "threads",        "sample",   "dry-run",    "quiet",   "tokenize", "eval-nll",
        "prune"}) {
    BOOST_CHECK_MESSAGE(help.str().find("--" + std::string(name)) != std::string::npos, name);
  }
}

BOOST_AUTO_TEST_CASE(senseless_command_lines_are_refused_with_the_reason) {
  const std::vector<Refused> cases = {
      {{"--nope"}, "--nope"},
      {{"file.jsonl"}, "positional"},
      {{"--step", "3"}, "--step"},
      {{"--steps", "0"}, "--steps 0 must be 1"},
      {{"--steps", "many"}, "steps"},
      {{"--rank", "2000"}, "--rank 2000"},
      {{"--seq", "1"}, "--seq 1"},
      {{"--batch", "-1"}, "--batch -1"},
      {{"--threads", "0"}, "--threads 0"},
      {{"--lr", "nan"}, "--lr"},
      {{"--lr", "inf"}, "--lr"},
      {{"--beta1", "1"}, "--beta1"},
      {{"--dropout", "1"}, "--dropout 1"},
      {{"--clip", "-1"}, "--clip"},
      {{"--seed", "-1"}, "--seed"},
      {{"--schedule", "step"}, "constant, linear, cosine"},
      {{"--compute", "fp16"}, "bf16, fp32"},
      {{"--linear", "slow"}, "fused, dequant, cached"},
      {{"--graph", "on"}, "off, auto, required"},
      {{"--prune", "yes"}, "on, off"},
      {{"--device", "tpu"}, "cpu, cuda, emulated, reference"},
      {{"--device", "emulated", "--linear", "dequant"}, "--linear"},
      {{"--projections", "merged"}, "separate"},
      {{"--target-modules", "q_proj,head"}, "'head'"},
      {{"--target-modules", "q_proj,q_proj"}, "twice"},
      {{"--shape", "huge"}, "--shape help"},
      {{"--model", "m", "--shape", "tiny"}, "exclude"},
      {{"--model", "m"}, "--data"},
      {{"--model", "m", "--data", "x.csv"}, ".jsonl, .safetensors"},
      {{"--model", "m", "--data", "x.jsonl"}, "tokenizer"},
      {{"--shape", "tiny", "--sample", "Hi"}, "tokenizer"},
      {{"--eval-nll", "a.txt"}, "tokenizer"},
      {{"--steps", "5", "--warmup", "5"}, "--warmup 5"},
      {{"--graph-out", "g.svg"}, ".json, .dot, .txt"},
      {{"--dump", "d.bin"}, ".safetensors"},
      {{"--dump", "d.safetensors", "--accumulate", "2"}, "--accumulate"},
      {{"--device", "reference", "--linear", "cached"}, "--linear"},
  };
  for (const Refused& refused : cases) {
    std::vector<const char*> argv = {"qlora_step"};
    argv.insert(argv.end(), refused.arguments.begin(), refused.arguments.end());
    BOOST_TEST_CONTEXT(refused.arguments.front()) {
      test::check_throws<UsageError>(
          [&] { parse_command_line(static_cast<int>(argv.size()), argv.data()); }, {refused.text});
    }
  }
}

BOOST_AUTO_TEST_CASE(options_that_contradict_an_adapter_are_refused) {
  const std::string adapter = test::golden("qwen2/train-nf4/adapter-init").string();
  const char* path = adapter.c_str();
  BOOST_CHECK_EQUAL(resolve_lora(parse({"--adapter", path}).options).rank, 8);
  BOOST_CHECK_EQUAL(resolve_lora(parse({"--adapter", path, "--rank", "8"}).options).alpha, 16);
  for (const auto& [name, value, text] : {std::tuple("--rank", "16", "--rank 16"),
                                          {"--alpha", "32", "--alpha 32"},
                                          {"--dropout", "0.5", "--dropout 0.5"},
                                          {"--target-modules", "q_proj", "all seven"}}) {
    const Options options = parse({"--adapter", path, name, value}).options;
    test::check_throws<UsageError>([&] { resolve_lora(options); }, {text, "--adapter"});
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::qlora_step
