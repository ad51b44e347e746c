#include "reprise/runtime/durable_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "reprise/runtime/mapped_file.h"
#include "tests/runtime/hostile_files.h"

namespace reprise::test {
namespace {

namespace fs = std::filesystem;

ByteParts parts_of(std::string_view text) { return {std::as_bytes(std::span(text))}; }

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  BOOST_REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

std::size_t entries_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

class Umask {
 public:
  explicit Umask(mode_t mask) : old_(::umask(mask)) {}
  ~Umask() { ::umask(old_); }

 private:
  mode_t old_;
};

// Runs `action` in a child whose files may not exceed `limit` bytes; true if it returned true.
// A child, since the limit would hit the log of the tests too.
bool with_file_size_limit(rlim_t limit, const std::function<bool()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);  // the call then fails with EFBIG
    const rlimit sizes{limit, limit};
    const bool passed = ::setrlimit(RLIMIT_FSIZE, &sizes) == 0 && action();
    ::_exit(passed ? 0 : 1);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

BOOST_AUTO_TEST_SUITE(durable_file)

BOOST_AUTO_TEST_CASE(writes_and_replaces_with_the_right_mode) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "adapter é.bin";
  {
    const Umask mask(022);
    write_durably(path, parts_of("first"));
    BOOST_CHECK_EQUAL(mode_of(path), 0644u);  // a server of another user can read it
  }
  BOOST_CHECK_EQUAL(read_bytes(path), "first");
  {
    const Umask mask(027);
    write_durably(folder.path() / "other", parts_of(""));
    BOOST_CHECK_EQUAL(mode_of(folder.path() / "other"), 0640u);
    // An old file's mode stays, whatever the umask.
    BOOST_REQUIRE(::chmod(path.c_str(), 0666) == 0);
    write_durably(path, parts_of("second"));
    BOOST_CHECK_EQUAL(mode_of(path), 0666u);
    BOOST_REQUIRE(::chmod(path.c_str(), 0600) == 0);
    write_durably(path, parts_of("third"));
    BOOST_CHECK_EQUAL(mode_of(path), 0600u);
  }
  BOOST_CHECK_EQUAL(read_bytes(path), "third");
  BOOST_CHECK_EQUAL(entries_in(folder.path()), 2u);  // no temporary is left
}

BOOST_AUTO_TEST_CASE(nothing_is_visible_before_publish) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "x";
  write_durably(path, parts_of("old"));
  {
    DurableFile file(path, 1000);
    file.append(std::as_bytes(std::span("new", 3)));
    BOOST_CHECK_EQUAL(read_bytes(path), "old");
    file.finish();
    BOOST_CHECK_EQUAL(read_bytes(path), "old");
  }
  BOOST_CHECK_EQUAL(read_bytes(path), "old");
  BOOST_CHECK_EQUAL(entries_in(folder.path()), 1u);
  DurableFile file(path, 1000);  // what was reserved and not written is cut off
  file.append(std::as_bytes(std::span("new", 3)));
  file.publish();
  BOOST_CHECK_EQUAL(read_bytes(path), "new");
}

BOOST_AUTO_TEST_CASE(replacing_a_mapped_file_leaves_the_mapping_alone) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "x";
  write_durably(path, parts_of("what is mapped"));
  const MappedFile mapped(path);
  write_durably(path, parts_of("new"));
  const std::string_view seen(reinterpret_cast<const char*>(mapped.bytes().data()),
                              mapped.bytes().size());
  BOOST_CHECK_EQUAL(seen, "what is mapped");
  // A file can be made from its own old content.
  write_durably(path, {mapped.bytes(), mapped.bytes()});
  BOOST_CHECK_EQUAL(read_bytes(path), "what is mappedwhat is mapped");
  check_refused([&] { mapped.part(10, 5); }, {"5 bytes at offset 10", "14 bytes"});
  check_refused([&] { mapped.part(INT64_MAX, 1); }, {"leave the file"});
}

BOOST_AUTO_TEST_CASE(a_full_disk_leaves_the_old_file) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "x";
  write_durably(path, parts_of("old"));
  const std::string large(100'000, 'x');
  const auto fails_with = [&](const std::function<void()>& action, std::string_view text) {
    try {
      action();
    } catch (const DoesNotFit& error) {
      const std::string_view message = error.what();
      return message.find(text) != std::string_view::npos &&
             message.find("File too large") != std::string_view::npos &&
             message.find(path.native()) != std::string_view::npos;
    }
    return false;
  };
  // Known size: found before a byte is written. Unknown size: when a write comes back short.
  BOOST_CHECK(with_file_size_limit(4096, [&] {
    return fails_with([&] { write_durably(path, parts_of(large)); }, "it needs 100000 bytes");
  }));
  BOOST_CHECK(with_file_size_limit(4096, [&] {
    return fails_with(
        [&] {
          DurableFile file(path);
          file.append(std::as_bytes(std::span(large)));
        },
        "after 4096 bytes");
  }));
  BOOST_CHECK_EQUAL(read_bytes(path), "old");
  BOOST_CHECK_EQUAL(entries_in(folder.path()), 1u);
}

BOOST_AUTO_TEST_CASE(targets_that_are_refused) {
  const TemporaryFolder folder;
  const auto& dir = folder.path();
  const auto write = [](const fs::path& path) { write_durably(path, parts_of("x")); };
  write_bytes(dir / "file", "kept");
  fs::create_symlink("file", dir / "link");
  fs::create_symlink("/nowhere/else", dir / "dangling");
  fs::create_directory(dir / "sub");
  BOOST_REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  check_throws<UsageError>([&] { write(dir / "link"); }, {"link\"", "symbolic link"});
  check_throws<UsageError>([&] { write(dir / "dangling"); }, {"symbolic link"});
  check_throws<UsageError>([&] { write(dir / "sub"); }, {"sub\"", "not a regular file"});
  check_throws<UsageError>([&] { write(dir / "fifo"); }, {"not a regular file"});
  check_throws<UsageError>([&] { write(dir / "sub" / ""); }, {"not the name of a file"});
  check_throws<UsageError>([&] { write(dir / "gone" / "x"); },
                           {"gone/x\"", "cannot open the folder", "No such file"});
  check_throws<UsageError>([&] { write(dir / "file" / "x"); }, {"Not a directory"});
  check_throws<UsageError>([&] { write(dir / std::string(300, 'n')); }, {"File name too long"});
  BOOST_CHECK_EQUAL(read_bytes(dir / "file"), "kept");
  BOOST_CHECK(fs::is_symlink(dir / "link"));
  BOOST_CHECK_EQUAL(entries_in(dir), 5u);
  // The temporary's own name never adds to the target's.
  write(dir / std::string(255, 'n'));
  BOOST_CHECK_EQUAL(read_bytes(dir / std::string(255, 'n')), "x");
}

BOOST_AUTO_TEST_CASE(a_folder_that_may_not_be_written) {
  const TemporaryFolder folder;
  const fs::path dir = folder.path() / "locked";
  fs::create_directory(dir);
  write_bytes(dir / "x", "old");
  BOOST_REQUIRE(::chmod(dir.c_str(), 0555) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // The superuser may write anywhere: become somebody else, who must be able to get here.
    ::chmod(folder.path().c_str(), 0755);
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    try {
      write_durably(dir / "x", parts_of("new"));
    } catch (const UsageError& error) {
      ::_exit(std::string_view(error.what()).find("Permission denied") == std::string_view::npos);
    }
    ::_exit(1);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  BOOST_CHECK_EQUAL(read_bytes(dir / "x"), "old");
  BOOST_REQUIRE(::chmod(dir.c_str(), 0755) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(durable_folder)

std::vector<FileContent> two_files(std::string_view weights, std::string_view config) {
  return {{"weights", parts_of(weights)}, {"config", parts_of(config)}};
}

void check_folder(const fs::path& dir, std::string_view weights, std::string_view config) {
  BOOST_CHECK_EQUAL(read_bytes(dir / "weights"), weights);
  BOOST_CHECK_EQUAL(read_bytes(dir / "config"), config);
}

BOOST_AUTO_TEST_CASE(makes_and_exchanges_folders) {
  const TemporaryFolder folder;
  const fs::path dir = folder.path() / "adapter";
  const Umask mask(022);
  replace_folder_files(dir, two_files("w1", "c1"));
  check_folder(dir, "w1", "c1");
  BOOST_CHECK_EQUAL(mode_of(dir), 0755u);
  BOOST_CHECK_EQUAL(mode_of(dir / "weights"), 0644u);
  struct stat old {
  }, now{};
  BOOST_REQUIRE(::stat(dir.c_str(), &old) == 0);
  BOOST_REQUIRE(::chmod(dir.c_str(), 0750) == 0);
  replace_folder_files(dir / "", two_files("w2", "c2"));  // with a slash at the end
  check_folder(dir, "w2", "c2");
  BOOST_REQUIRE(::stat(dir.c_str(), &now) == 0);
  BOOST_CHECK_NE(old.st_ino, now.st_ino);  // exchanged, not changed in place
  BOOST_CHECK_EQUAL(mode_of(dir), 0750u);
  BOOST_CHECK_EQUAL(entries_in(folder.path()), 1u);
  // An empty folder that is there already, as a user makes it.
  fs::create_directory(folder.path() / "empty");
  replace_folder_files(folder.path() / "empty", two_files("w3", "c3"));
  check_folder(folder.path() / "empty", "w3", "c3");
}

BOOST_AUTO_TEST_CASE(other_things_in_the_folder_stay) {
  const TemporaryFolder folder;
  const fs::path dir = folder.path() / "out";
  fs::create_directories(dir / "logs");
  write_bytes(dir / "README.md", "mine");
  replace_folder_files(dir, two_files("w1", "c1"));
  check_folder(dir, "w1", "c1");
  replace_folder_files(dir, two_files("w2", "c1"));
  check_folder(dir, "w2", "c1");
  replace_folder_files(dir, two_files("w3", "c3"));
  check_folder(dir, "w3", "c3");
  BOOST_CHECK_EQUAL(read_bytes(dir / "README.md"), "mine");
  BOOST_CHECK(fs::is_directory(dir / "logs"));
  BOOST_CHECK_EQUAL(entries_in(dir), 4u);
  BOOST_CHECK_EQUAL(entries_in(folder.path()), 1u);
}

BOOST_AUTO_TEST_CASE(probes_leave_nothing_behind) {
  const TemporaryFolder folder;
  const auto& dir = folder.path();
  fs::create_directory(dir / "sub");
  write_bytes(dir / "file", "kept");
  require_writable_file(dir / "file");
  require_writable_file(dir / "new");
  require_writable_folder(dir / "sub");
  require_writable_folder(dir / "other" / "");
  check_throws<UsageError>([&] { require_writable_file(dir / "sub"); }, {"not a regular file"});
  check_throws<UsageError>([&] { require_writable_file(dir / "no" / "x"); }, {"No such file"});
  check_throws<UsageError>([&] { require_writable_folder(dir / "file"); }, {"not a folder"});
  check_throws<UsageError>([&] { require_writable_folder(dir / "no" / "x"); }, {"No such file"});
  BOOST_CHECK_EQUAL(read_bytes(dir / "file"), "kept");
  BOOST_CHECK_EQUAL(entries_in(dir), 2u);
  BOOST_CHECK_EQUAL(entries_in(dir / "sub"), 0u);
}

BOOST_AUTO_TEST_CASE(a_link_to_a_folder_stays_a_link) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "real");
  fs::create_symlink("real", folder.path() / "link");
  replace_folder_files(folder.path() / "link", two_files("w", "c"));
  check_folder(folder.path() / "real", "w", "c");
  BOOST_CHECK(fs::is_symlink(folder.path() / "link"));
}

BOOST_AUTO_TEST_CASE(a_failure_leaves_the_old_files) {
  const TemporaryFolder folder;
  const std::string large(100'000, 'x');
  for (const bool others : {false, true}) {
    const fs::path dir = folder.path() / (others ? "a" : "b");
    replace_folder_files(dir, two_files("w1", "c1"));
    if (others) write_bytes(dir / "README.md", "mine");
    BOOST_CHECK(with_file_size_limit(4096, [&] {
      try {
        replace_folder_files(dir, two_files(large, "c2"));
      } catch (const DoesNotFit&) {
        return true;
      }
      return false;
    }));
    check_folder(dir, "w1", "c1");
    BOOST_CHECK_EQUAL(entries_in(dir), others ? 3u : 2u);
  }
  BOOST_CHECK_EQUAL(entries_in(folder.path()), 2u);
  write_bytes(folder.path() / "file", "x");
  check_throws<UsageError>([&] { replace_folder_files(folder.path() / "file", two_files("", "")); },
                           {"exists and is not a folder"});
  check_throws<UsageError>(
      [&] { replace_folder_files(folder.path() / "no" / "x", two_files("", "")); },
      {"no/x\"", "No such file"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
