// Folders that are replaced as one; see durable_file.h.
#include <fcntl.h>
#include <stdio.h>  // renameat2 and its flags are not in <cstdio>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "reprise/runtime/durable_file.h"
#include "reprise/runtime/mapped_file.h"
#include "runtime/io/quoted.h"
#include "runtime/io/temporary_name.h"
#include "runtime/io/write_errors.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, const std::string& action, int error) {
  throw_not_written(in_quotes(folder) + ": not written: cannot " + action + ": " +
                        std::generic_category().message(error),
                    error);
}

// Returns 0 or errno.
int sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

[[noreturn]] void throw_uncertain(const fs::path& folder, int error) {
  throw DurabilityUncertain(in_quotes(folder) + ": written, but syncing a folder failed: " +
                            std::generic_category().message(error) +
                            "; a crash of the machine may undo it");
}

void sync_parent(const fs::path& folder, const fs::path& parent) {
  if (const int error = sync_folder(parent); error != 0) throw_uncertain(folder, error);
}

std::unique_ptr<DurableFile> prepare(const fs::path& folder, const FileContent& content) {
  std::int64_t bytes = 0;
  for (const auto part : content.parts) bytes += static_cast<std::int64_t>(part.size());
  auto file = std::make_unique<DurableFile>(folder / content.name, bytes);
  for (const auto part : content.parts) file->append(part);
  file->finish();
  return file;
}

// A folder under a temporary name, removed with its files unless it has been given away.
class StagingFolder {
 public:
  StagingFolder(const fs::path& parent, const fs::path& target,
                const std::vector<FileContent>& files)
      : path_(parent / make_temporary_name()), files_(files) {
    if (::mkdir(path_.c_str(), 0777) != 0) fail(target, "create a folder beside it", errno);
  }
  ~StagingFolder() { remove(); }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const fs::path& path() const { return path_; }
  void release() { owned_ = false; }
  // Only files of the known names: whatever else might be there is never deleted.
  void remove() {
    if (!std::exchange(owned_, false)) return;
    for (const FileContent& file : files_) ::unlink((path_ / file.name).c_str());
    ::rmdir(path_.c_str());
  }

 private:
  fs::path path_;
  const std::vector<FileContent>& files_;
  bool owned_ = true;
};

bool holds_only(const fs::path& folder, const std::vector<FileContent>& files) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    bool known = false;
    for (const FileContent& file : files) known |= entry.path().filename() == file.name;
    if (!known || !entry.is_regular_file() || entry.is_symlink()) return false;
  }
  return true;
}

bool has_content(const fs::path& path, const ByteParts& parts) {
  std::error_code missing;
  const auto size = fs::file_size(path, missing);
  std::size_t wanted = 0;
  for (const auto part : parts) wanted += part.size();
  if (missing || size != wanted || wanted == 0) return false;
  const MappedFile file(path);
  std::size_t position = 0;
  for (const auto part : parts) {
    const auto old = file.bytes().subspan(position, part.size());
    if (!std::equal(part.begin(), part.end(), old.begin())) return false;
    position += part.size();
  }
  return true;
}

void replace_in_place(const fs::path& folder, const std::vector<FileContent>& files) {
  std::vector<std::unique_ptr<DurableFile>> prepared;
  for (const FileContent& file : files) prepared.push_back(prepare(folder, file));
  const fs::path last = folder / files.back().name;
  if (!has_content(last, files.back().parts)) {
    if (::unlink(last.c_str()) != 0 && errno != ENOENT) fail(folder, "remove its old file", errno);
    if (const int error = sync_folder(folder); error != 0) fail(folder, "sync it", error);
  }
  // A sync between, so that a crash of the machine cannot keep the last name and lose another. If
  // it fails the rest is done all the same: then at least this machine sees a whole folder.
  int first_error = 0;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    prepared[i]->publish(FolderSync::kLater);
    if (i + 2 < prepared.size()) continue;
    const int error = sync_folder(folder);
    if (first_error == 0) first_error = error;
  }
  if (first_error != 0) throw_uncertain(folder, first_error);
}

}  // namespace

void replace_folder_files(const fs::path& folder, const std::vector<FileContent>& files) {
  require(!files.empty(), "replace_folder_files: no files");
  // "out/" names the folder out: a trailing slash has an empty last part.
  const fs::path target = folder.has_filename() ? folder : folder.parent_path();
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  std::error_code unknown;
  const fs::file_status status = fs::symlink_status(target, unknown);
  const bool exists = fs::exists(status);
  if (exists && !fs::is_directory(fs::status(target, unknown))) {
    throw UsageError(in_quotes(target) + ": exists and is not a folder");
  }
  // A name that cannot be exchanged: "." and "..", or a link to the folder.
  const bool plain = target.filename() != "." && target.filename() != ".." && !target.empty() &&
                     target.has_filename() && !fs::is_symlink(status);
  if (exists && (!plain || !holds_only(target, files))) return replace_in_place(target, files);

  StagingFolder staging(parent, target, files);
  for (const FileContent& file : files) {
    prepare(staging.path(), file)->publish(FolderSync::kLater);
  }
  if (const int error = sync_folder(staging.path()); error != 0) fail(target, "sync it", error);
  if (!exists) {
    // Not over a folder that somebody has made in the meantime, unless it is empty.
    if (::rename(staging.path().c_str(), target.c_str()) != 0) fail(target, "rename to it", errno);
    staging.release();
    return sync_parent(target, parent);
  }
  struct stat old {};
  if (::stat(target.c_str(), &old) == 0) ::chmod(staging.path().c_str(), old.st_mode & 07777);
  if (::renameat2(AT_FDCWD, staging.path().c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) !=
      0) {
    staging.remove();  // no such call here, or the folder is a mount point
    return replace_in_place(target, files);
  }
  sync_parent(target, parent);
  staging.remove();  // what now has the temporary name: the old files
}

}  // namespace reprise
