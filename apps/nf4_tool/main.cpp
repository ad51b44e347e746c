// nf4_tool: quantises safetensors to NF4 and back, in bitsandbytes' layout.
#include <boost/program_options.hpp>
#include <csignal>
#include <exception>
#include <iostream>
#include <new>

#include "apps/nf4_tool/commands.h"
#include "reprise/kernels/error.h"
#include "reprise/runtime/model_config.h"

namespace reprise::nf4_tool {
namespace {

namespace po = boost::program_options;

constexpr const char* kUsage = R"(Usage: nf4_tool quantize   IN OUT [options]
       nf4_tool dequantize IN OUT [options]
       nf4_tool inspect    IN

IN is a .safetensors file, or a folder with model.safetensors or with
model.safetensors.index.json and its shards; OUT is one file, written whole or not at all.
quantize turns weights into 4-bit NF4 in the layout of bitsandbytes and copies all other tensors;
dequantize does the reverse; inspect lists tensors and checks every NF4 weight.

)";

constexpr const char* kExamples = R"(
Examples:
  nf4_tool quantize model/ model-nf4/model.safetensors --double-quant
  nf4_tool quantize a.safetensors b.safetensors --weights experts.w1.weight --block-size 128
  nf4_tool dequantize model-nf4/ restored.safetensors --dtype bf16
  nf4_tool inspect model-nf4/

A folder for transformers also needs config.json with a quantization_config: quant_method
"bitsandbytes", load_in_4bit true, bnb_4bit_quant_type "nf4", bnb_4bit_use_double_quant.

Exit codes: 0 done; 1 a defect in the program; 2 wrong usage, an output path that
cannot be written included; 3 bad or missing input; 4 no room for the output.
)";

po::options_description option_list() {
  po::options_description options("Options", 100);
  options.add_options()("help,h", "print this text")(
      "block-size", po::value<std::int64_t>()->default_value(64),
      "quantize: weights that share a scale; 64, 128, 256, 512, 1024, 2048 or 4096")(
      "double-quant", po::bool_switch(), "quantize: store the scales in 8 bits")(
      "weights", po::value<std::vector<std::string>>()->composing(),
      "quantize: only two-dimensional tensors whose name ends so; may be repeated (default: the "
      "seven projections, q_proj.weight ... down_proj.weight)")(
      "dtype", po::value<std::string>(),
      "dequantize: f32, bf16 or f16 (default: what each weight was before)");
  return options;
}

po::variables_map parse(int argc, char** argv) {
  po::options_description all = option_list();
  all.add_options()("command", po::value<std::string>())("files",
                                                         po::value<std::vector<std::string>>());
  po::positional_options_description places;
  places.add("command", 1).add("files", -1);
  po::variables_map values;
  try {
    // No guessing: an abbreviated option may mean another one in a later version.
    const int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(
        po::command_line_parser(argc, argv).options(all).positional(places).style(style).run(),
        values);
    po::notify(values);
  } catch (const po::error& error) {
    throw UsageError(error.what());
  }
  return values;
}

// The paths that the command takes, and no option that it does not know.
std::vector<std::string> files_of(const po::variables_map& values, const std::string& command,
                                  std::size_t count) {
  const auto given = [&](const char* name) {
    return values.count(name) != 0 && !values[name].defaulted();
  };
  const auto only_for = [&](const char* name, const char* owner) {
    if (given(name) && command != owner) {
      throw UsageError("--" + std::string(name) + " is an option of " + owner);
    }
  };
  only_for("block-size", "quantize");
  only_for("weights", "quantize");
  only_for("dtype", "dequantize");
  if (values["double-quant"].as<bool>() && command != "quantize") {
    throw UsageError("--double-quant is an option of quantize");
  }
  std::vector<std::string> files;
  if (values.count("files") != 0) files = values["files"].as<std::vector<std::string>>();
  if (files.size() != count) {
    throw UsageError(command + " takes " + (count == 1 ? "one path" : "two paths: IN and OUT") +
                     ", found " + std::to_string(files.size()));
  }
  return files;
}

QuantizeOptions quantize_options(const po::variables_map& values) {
  const std::vector<std::string> files = files_of(values, "quantize", 2);
  QuantizeOptions options{.input = files[0], .output = files[1], .storage = {}, .suffixes = {}};
  const std::int64_t block = values["block-size"].as<std::int64_t>();
  if (block < 64 || block > 4096 || (block & (block - 1)) != 0) {
    throw UsageError("--block-size " + std::to_string(block) +
                     " must be 64, 128, 256, 512, 1024, 2048 or 4096");
  }
  options.storage.block_size = block;
  options.storage.double_quant =
      values["double-quant"].as<bool>() ? DoubleQuant::kOn : DoubleQuant::kOff;
  if (values.count("weights") != 0) {
    options.suffixes = values["weights"].as<std::vector<std::string>>();
  } else {
    for (const Projection projection : kAllProjections) {
      options.suffixes.push_back(std::string(name_of(projection)) + ".weight");
    }
  }
  return options;
}

DequantizeOptions dequantize_options(const po::variables_map& values) {
  const std::vector<std::string> files = files_of(values, "dequantize", 2);
  DequantizeOptions options{.input = files[0], .output = files[1], .dtype = {}};
  if (values.count("dtype") == 0) return options;
  const std::string name = values["dtype"].as<std::string>();
  if (name == "f32") {
    options.dtype = DType::kF32;
  } else if (name == "bf16") {
    options.dtype = DType::kBF16;
  } else if (name == "f16") {
    options.dtype = DType::kF16;
  } else {
    throw UsageError("--dtype " + name + " must be f32, bf16 or f16");
  }
  return options;
}

void run(int argc, char** argv) {
  const po::variables_map values = parse(argc, argv);
  if (values.count("help") != 0) {
    std::cout << kUsage << option_list() << kExamples;
    return;
  }
  if (values.count("command") == 0) throw UsageError("a command is missing");
  const std::string command = values["command"].as<std::string>();
  if (command == "quantize") return quantize(quantize_options(values), std::cout);
  if (command == "dequantize") return dequantize(dequantize_options(values), std::cout);
  if (command == "inspect") return inspect(files_of(values, command, 1)[0], std::cout);
  throw UsageError("unknown command " + command + "; there are quantize, dequantize and inspect");
}

int report(const std::exception& error, int code) {
  std::cerr << "nf4_tool: " << error.what() << "\n";
  if (code == 2) std::cerr << "Try nf4_tool --help\n";
  return code;
}

}  // namespace
}  // namespace reprise::nf4_tool

int main(int argc, char** argv) {
  using reprise::nf4_tool::report;
  // A file that grows past the limit of the process is an error to report, not to die of.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    reprise::nf4_tool::run(argc, argv);
    std::cout.flush();
    if (!std::cout) throw reprise::Error("writing to standard output failed");
    return 0;
  } catch (const reprise::UsageError& error) {
    return report(error, 2);
  } catch (const reprise::InputError& error) {
    return report(error, 3);
  } catch (const reprise::DoesNotFit& error) {
    return report(error, 4);
  } catch (const std::bad_alloc&) {
    return report(std::runtime_error("out of memory"), 4);
  } catch (const std::exception& error) {
    return report(error, 1);
  }
}
