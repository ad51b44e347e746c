// qlora_step: fine-tunes a language model by QLoRA, step by replayed step.
#include <csignal>
#include <iostream>

#include "apps/qlora_step/exit_code.h"
#include "apps/qlora_step/interrupt.h"
#include "apps/qlora_step/options.h"
#include "apps/qlora_step/session.h"

namespace reprise::qlora_step {
namespace {

int run_command_line(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv);
  switch (line.request) {
    case Request::kHelp:
      print_help(std::cout);
      return kExitDone;
    case Request::kVersion:
      std::cout << "qlora_step " REPRISE_VERSION "\n";
      return kExitDone;
    case Request::kListShapes:
      print_shapes(std::cout);
      return kExitDone;
    case Request::kRun:
      break;
  }
  watch_for_interrupts();
  return run(line.options, std::cout, std::cerr);
}

int report(const std::exception& error) {
  const int code = exit_code_of(error);
  std::cout.flush();
  std::cerr << "qlora_step: " << error.what() << "\n";
  if (code == kExitUsage) std::cerr << "Try qlora_step --help\n";
  return code;
}

}  // namespace
}  // namespace reprise::qlora_step

int main(int argc, char** argv) {
  // A file that grows past the limit of the process is an error to report, not to die of.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = reprise::qlora_step::run_command_line(argc, argv);
    std::cout.flush();
    if (!std::cout) throw reprise::Error("writing to standard output failed");
    return code;
  } catch (const std::exception& error) {
    return reprise::qlora_step::report(error);
  }
}
