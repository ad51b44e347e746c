#include "tests/apps/run_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace reprise::test {
namespace {

std::filesystem::path temporary_file() {
  std::string name = (std::filesystem::temp_directory_path() / "reprise-output-XXXXXX").string();
  const int file = mkstemp(name.data());
  BOOST_REQUIRE(file >= 0);
  close(file);
  return name;
}

std::string take_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Pointers into `strings`, with the null that exec wants at the end.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (std::string& text : strings) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment_with(const Environment& extra) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  for (const auto& [name, value] : extra) {
    std::erase_if(all, [&](const std::string& e) { return e.starts_with(name + "="); });
    all.push_back(name + "=" + value);
  }
  return all;
}

}  // namespace

RunningProgram::RunningProgram(const std::string& program,
                               const std::vector<std::string>& arguments, const Environment& extra)
    : out_(temporary_file()), err_(temporary_file()) {
  std::vector<std::string> strings = {std::string(REPRISE_BIN_DIR) + "/" + program};
  strings.insert(strings.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment_with(extra);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out_.c_str(), O_WRONLY, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err_.c_str(), O_WRONLY, 0600);
  const int error = posix_spawn(&pid_, strings[0].c_str(), &files, nullptr,
                                pointers(strings).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  BOOST_REQUIRE_MESSAGE(error == 0, "cannot start " << strings[0]);
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove(out_, ignored);
  std::filesystem::remove(err_, ignored);
}

void RunningProgram::send(int signal) const { BOOST_REQUIRE(kill(pid_, signal) == 0); }

ProgramResult RunningProgram::wait() {
  int status = 0;
  BOOST_REQUIRE(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = take_file(out_),
          .err = take_file(err_)};
}

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const Environment& extra) {
  return RunningProgram(program, arguments, extra).wait();
}

std::vector<MetricsLine> read_metrics(const std::filesystem::path& path) {
  std::vector<MetricsLine> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const nlohmann::json line = nlohmann::json::parse(text);
    lines.push_back({.step = line.at("step"),
                     .loss = line.at("loss"),
                     .grad_norm = line.at("grad_norm"),
                     .learning_rate = line.at("learning_rate")});
  }
  return lines;
}

}  // namespace reprise::test
