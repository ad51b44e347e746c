// Durable writing when the k-th system call of a kind fails, or the program is killed in it, for
// k = 1, 2, 3, ... until a run meets no fault. Needs strace; without it the test is skipped.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

namespace fs = std::filesystem;

constexpr int kWritten = 0;
constexpr int kUncertain = 10;
constexpr int kNotWritten = 11;
constexpr int kMostCalls = 60;  // of one kind in one run, the loader's included

int run_command(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool strace_works() {
  return run_command("strace -o /dev/null -e inject=fsync:error=EIO true >/dev/null 2>&1") == 0;
}

std::string quoted_path(const fs::path& path) { return "'" + path.native() + "'"; }

// What the writer wrote over, and how to tell whether the result is whole.
enum class Target { kFile, kNewFolder, kExchangedFolder, kSharedFolder };

class Scene {
 public:
  explicit Scene(Target target) : target_(target) {
    if (target == Target::kFile) write_bytes(path(), "old");
    if (target != Target::kExchangedFolder && target != Target::kSharedFolder) return;
    fs::create_directory(path());
    write_bytes(path() / "weights", "old");
    write_bytes(path() / "config", "old");
    if (target == Target::kSharedFolder) write_bytes(path() / "README.md", "mine");
  }

  fs::path path() const { return folder_.path() / "target"; }
  fs::path log() const { return log_folder_.path() / "strace"; }

  // Runs the writer with one fault; returns its exit code.
  int write(const std::string& fault) const {
    // The leak checker cannot run under a tracer.
    return run_command("ASAN_OPTIONS=detect_leaks=0 strace -f -o " + quoted_path(log()) +
                       " -e inject=" + fault + " " +
                       quoted_path(REPRISE_BIN_DIR "/durable_writer") +
                       (target_ == Target::kFile ? " file " : " folder ") + quoted_path(path()) +
                       " new >/dev/null 2>&1");
  }
  bool met_fault() const {
    const std::string text = read_bytes(log());
    return text.find("(INJECTED)") != std::string::npos ||
           text.find("killed by SIGKILL") != std::string::npos;
  }

  // "old", "new", or "none" where a reader would say that nothing is there; else a failure.
  std::string state() const {
    if (target_ == Target::kFile) return read_bytes(path());
    if (!fs::exists(path() / "config")) return "none";  // readers refuse the folder by name
    const std::string config = read_bytes(path() / "config");
    BOOST_CHECK_EQUAL(read_bytes(path() / "weights"), config);  // never a mix
    if (target_ == Target::kSharedFolder) BOOST_CHECK(fs::exists(path() / "README.md"));
    return config;
  }
  std::string first_state() const { return target_ == Target::kNewFolder ? "none" : "old"; }
  bool has_leftovers() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      if (entry.path().filename().native().starts_with(".reprise-")) return true;
    }
    return false;
  }

 private:
  Target target_;
  TemporaryFolder folder_;
  TemporaryFolder log_folder_;
};

// A fault in the few renames of a folder that is shared with other files may leave it without its
// configuration; everywhere else the old state must survive.
void check_failed(const Scene& scene, Target target, int code) {
  const std::string state = scene.state();
  const bool may_be_none = target == Target::kSharedFolder;
  if (code == kWritten) {
    BOOST_CHECK_EQUAL(state, "new");
  } else if (code == kUncertain) {
    BOOST_CHECK_EQUAL(state, "new");
  } else {
    BOOST_CHECK(state == scene.first_state() || (may_be_none && state == "none"));
  }
}

// Returns how many calls failed, one per run, when each fails once.
int fail_each_call(Target target, const std::string& call, const std::string& error) {
  int faults = 0;
  for (const char* repeat : {"", "+"}) {  // once, and from then on for ever
    int k = 1;
    for (; k <= kMostCalls; ++k) {
      const Scene scene(target);
      const std::string fault = call + ":error=" + error + ":when=" + std::to_string(k) + repeat;
      const int code = scene.write(fault);
      BOOST_TEST_CONTEXT(fault << " exit code " << code) {
        check_failed(scene, target, code);
        // Where nothing can be removed, the temporary stays.
        if (call.find("unlink") == std::string::npos && call != "?rmdir" &&
            (code == kNotWritten || code == kWritten)) {
          BOOST_CHECK(!scene.has_leftovers());
        }
      }
      if (!scene.met_fault()) break;
    }
    BOOST_CHECK_LE(k, kMostCalls);
    if (*repeat == '\0') faults = k - 1;
  }
  return faults;
}

void kill_in_each_call(Target target, const std::string& call) {
  int k = 1;
  for (; k <= kMostCalls; ++k) {
    const Scene scene(target);
    const std::string fault = call + ":signal=SIGKILL:when=" + std::to_string(k);
    const int code = scene.write(fault);
    BOOST_TEST_CONTEXT(fault) {
      const std::string state = scene.state();
      BOOST_CHECK(state == "new" || state == scene.first_state() ||
                  (target == Target::kSharedFolder && state == "none"));
      if (!scene.met_fault()) BOOST_CHECK_EQUAL(code, kWritten);
    }
    if (!scene.met_fault()) break;
  }
  BOOST_CHECK_LE(k, kMostCalls);
}

BOOST_AUTO_TEST_SUITE(write_faults)

BOOST_AUTO_TEST_CASE(every_call_fails_once_and_for_ever) {
  if (!strace_works()) {
    BOOST_TEST_MESSAGE("skipped: strace is missing or may not trace");
    return;
  }
  for (const Target target :
       {Target::kFile, Target::kNewFolder, Target::kExchangedFolder, Target::kSharedFolder}) {
    const int files = target == Target::kFile ? 1 : 2;
    BOOST_CHECK_EQUAL(fail_each_call(target, "fallocate", "ENOSPC"), files);
    BOOST_CHECK_EQUAL(fail_each_call(target, "pwrite64", "ENOSPC"), files);
    // Each file and at least one folder.
    BOOST_CHECK_GT(fail_each_call(target, "fsync", "EIO"), files);
    BOOST_CHECK_EQUAL(fail_each_call(target, "renameat", "EPERM"), files);
    fail_each_call(target, "?rename", "EPERM");
    fail_each_call(target, "renameat2", "EPERM");
    fail_each_call(target, "unlinkat", "EIO");
    fail_each_call(target, "?unlink", "EIO");
    fail_each_call(target, "?rmdir", "EIO");
    fail_each_call(target, "?mkdir", "EDQUOT");
  }
}

BOOST_AUTO_TEST_CASE(a_kill_in_any_call_leaves_old_or_new) {
  if (!strace_works()) {
    BOOST_TEST_MESSAGE("skipped: strace is missing or may not trace");
    return;
  }
  for (const Target target :
       {Target::kFile, Target::kNewFolder, Target::kExchangedFolder, Target::kSharedFolder}) {
    // The tracer counts each kind by itself.
    for (const char* call : {"fallocate", "pwrite64", "fsync", "close", "?rename", "renameat",
                             "renameat2", "unlinkat", "?unlink", "?rmdir", "?mkdir"}) {
      kill_in_each_call(target, call);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_file_system_without_exchange_or_reservation) {
  if (!strace_works()) {
    BOOST_TEST_MESSAGE("skipped: strace is missing or may not trace");
    return;
  }
  for (const Target target :
       {Target::kFile, Target::kNewFolder, Target::kExchangedFolder, Target::kSharedFolder}) {
    for (const char* fault : {"fallocate:error=EOPNOTSUPP", "fallocate:error=ENOSYS",
                              "renameat2:error=EINVAL", "renameat2:error=ENOSYS"}) {
      const Scene scene(target);
      BOOST_TEST_CONTEXT(fault) {
        BOOST_CHECK_EQUAL(scene.write(fault), kWritten);
        BOOST_CHECK_EQUAL(scene.state(), "new");
        BOOST_CHECK(!scene.has_leftovers());
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
