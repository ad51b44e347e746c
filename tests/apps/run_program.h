// Runs a built program as a user would, and reads what it leaves.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace reprise::test {

struct ProgramResult {
  int exit_code = -1;  // 128 + the signal when one ended it
  std::string out;
  std::string err;
  std::string all() const { return out + err; }
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// A program that runs; its output goes to files, so that it never waits for a reader.
class RunningProgram {
 public:
  RunningProgram(const std::string& program, const std::vector<std::string>& arguments,
                 const Environment& extra = {});
  ~RunningProgram();  // kills it if it still runs
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  void send(int signal) const;
  ProgramResult wait();

 private:
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
};

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const Environment& extra = {});

// What qlora_step says about steps, line by line.
struct MetricsLine {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0, learning_rate = 0;
};
std::vector<MetricsLine> read_metrics(const std::filesystem::path& path);

}  // namespace reprise::test
