#include "reprise/runtime/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "reprise/runtime/quoted.h"
#include "runtime/io/temporary_name.h"
#include "runtime/io/write_errors.h"

namespace reprise {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// Linux transfers at most 2,147,479,552 bytes in one call; 1 GiB leaves no special case.
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;

}  // namespace

DurableFile::DurableFile(const std::filesystem::path& target, std::int64_t bytes)
    : target_(target), target_name_(target.filename().native()), expected_bytes_(bytes) {
  if (target_name_.empty() || target_name_ == "." || target_name_ == "..") {
    throw UsageError(in_quotes(target_) + ": is not the name of a file");
  }
  temporary_name_ = make_temporary_name();  // before anything is open: it may throw
  const std::filesystem::path parent = target_.has_parent_path() ? target_.parent_path() : ".";
  folder_ = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) fail("open the folder", errno);
  struct stat old {};
  const bool exists = ::fstatat(folder_, target_name_.c_str(), &old, AT_SYMLINK_NOFOLLOW) == 0;
  if (!exists && errno != ENOENT) fail("look at it", errno);
  if (exists && S_ISLNK(old.st_mode)) {
    ::close(folder_);
    throw UsageError(in_quotes(target_) +
                     ": is a symbolic link; name the file itself, a link is not replaced");
  }
  if (exists && !S_ISREG(old.st_mode)) {
    ::close(folder_);
    throw UsageError(in_quotes(target_) + ": exists and is not a regular file");
  }
  // The kernel applies the umask to this mode, which could not be read without changing it.
  const mode_t mode = exists ? old.st_mode & 0666 : 0666;
  file_ = ::openat(folder_, temporary_name_.c_str(),
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (file_ < 0) fail("create a temporary file beside it", errno);
  temporary_exists_ = true;
  struct stat made {};
  if (::fstat(file_, &made) != 0) fail("look at the temporary file", errno);
  const mode_t wanted = exists ? old.st_mode & 07777 : made.st_mode & 07777;
  if ((made.st_mode & 07777) != wanted && ::fchmod(file_, wanted) != 0) {
    fail("give it the old file's mode", errno);
  }
  // fallocate and not posix_fallocate: where the file system cannot reserve, glibc would write
  // every block instead.
  if (bytes > 0 && ::fallocate(file_, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    fail("reserve its space", errno);
  }
}

DurableFile::~DurableFile() {
  if (file_ >= 0) ::close(file_);
  if (temporary_exists_) ::unlinkat(folder_, temporary_name_.c_str(), 0);
  if (folder_ >= 0) ::close(folder_);
}

void DurableFile::fail(const std::string& action, int error) {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  if (temporary_exists_) ::unlinkat(folder_, temporary_name_.c_str(), 0);
  temporary_exists_ = false;
  // A constructor that throws has no destructor to close it.
  if (folder_ >= 0) ::close(folder_);
  folder_ = -1;
  std::string message =
      in_quotes(target_) + ": not written: cannot " + action + ": " + reason(error);
  if (is_out_of_space(error) && expected_bytes_ > 0) {
    message += "; it needs " + std::to_string(expected_bytes_) + " bytes";
  } else if (is_out_of_space(error)) {
    message += " after " + std::to_string(written_bytes_) + " bytes";
  }
  throw_not_written(message + ". A file of that name is as it was before", error);
}

void DurableFile::append(std::span<const std::byte> bytes) {
  require(file_ >= 0, "DurableFile: append after finish");
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_, bytes.data(), std::min(bytes.size(), kLargestWrite), written_bytes_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    if (written == 0) fail("write", ENOSPC);  // no progress and no reason: never loop on it
    written_bytes_ += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void DurableFile::finish() {
  require(file_ >= 0, "DurableFile: finish twice");
  // Fewer bytes than were reserved: the rest would be zeros.
  if (written_bytes_ < expected_bytes_ && ::ftruncate(file_, written_bytes_) != 0) {
    fail("cut it to its size", errno);
  }
  if (::fsync(file_) != 0) fail("sync it", errno);
  const int file = file_;
  file_ = -1;
  // After EINTR the descriptor is closed all the same, and the data was synced before.
  if (::close(file) != 0 && errno != EINTR) fail("close it", errno);
}

void DurableFile::publish(FolderSync sync) {
  if (file_ >= 0) finish();
  require(temporary_exists_, "DurableFile: publish twice");
  if (::renameat(folder_, temporary_name_.c_str(), folder_, target_name_.c_str()) != 0) {
    fail("rename the temporary file to it", errno);
  }
  temporary_exists_ = false;
  if (sync == FolderSync::kNow && ::fsync(folder_) != 0) {
    throw DurabilityUncertain(in_quotes(target_) + ": written, but syncing its folder failed: " +
                              reason(errno) + "; a crash of the machine may undo it");
  }
}

void write_durably(const std::filesystem::path& path, const ByteParts& parts) {
  std::int64_t bytes = 0;
  for (const auto part : parts) bytes += static_cast<std::int64_t>(part.size());
  DurableFile file(path, bytes);
  for (const auto part : parts) file.append(part);
  file.publish();
}

void require_writable_file(const std::filesystem::path& path) {
  DurableFile probe(path);
  probe.finish();
}

}  // namespace reprise
