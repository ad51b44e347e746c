// Folders that are replaced as one; see durable_file.h.
#include <fcntl.h>
#include <stdio.h>  // renameat2 and its flags are not in <cstdio>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "reprise/runtime/durable_file.h"
#include "reprise/runtime/mapped_file.h"
#include "reprise/runtime/quoted.h"
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

// Where a folder is to be written.
struct Place {
  fs::path target;
  fs::path parent;
  bool exists = false;
  bool link = false;  // the name is a symbolic link to the folder
};

Place find_place(const fs::path& folder) {
  Place place;
  // "out/" names the folder out: a trailing slash has an empty last part.
  place.target = folder.has_filename() ? folder : folder.parent_path();
  place.parent = place.target.has_parent_path() ? place.target.parent_path() : fs::path(".");
  std::error_code unknown;  // then creating something there says why
  const fs::file_status status = fs::symlink_status(place.target, unknown);
  place.exists = fs::exists(status);
  place.link = fs::is_symlink(status);
  if (place.exists && !fs::is_directory(fs::status(place.target, unknown))) {
    throw UsageError(in_quotes(place.target) + ": exists and is not a folder");
  }
  return place;
}

// A folder under a temporary name, removed with its files unless it has been given away.
class StagingFolder {
 public:
  StagingFolder(const Place& place, const std::vector<FileContent>& files)
      : path_(place.parent / make_temporary_name()) {
    for (const FileContent& file : files) names_.push_back(file.name);
    if (::mkdir(path_.c_str(), 0777) != 0) fail(place.target, "create a folder beside it", errno);
  }
  ~StagingFolder() { remove(); }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const fs::path& path() const { return path_; }
  void release() { owned_ = false; }
  // Only files of the known names: whatever else might be there is never deleted.
  void remove() {
    if (!std::exchange(owned_, false)) return;
    for (const std::string& name : names_) ::unlink((path_ / name).c_str());
    ::rmdir(path_.c_str());
  }

 private:
  fs::path path_;
  std::vector<std::string> names_;
  bool owned_ = true;
};

bool holds_only(const fs::path& folder, const std::vector<FileContent>& files) {
  std::error_code unreadable;
  fs::directory_iterator entry(folder, unreadable);
  for (; !unreadable && entry != fs::directory_iterator(); entry.increment(unreadable)) {
    bool known = false;
    for (const FileContent& file : files) known |= entry->path().filename() == file.name;
    std::error_code gone;
    const fs::file_status status = entry->symlink_status(gone);
    if (!known || gone || !fs::is_regular_file(status)) return false;
  }
  return !unreadable;
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

// The old last file under a temporary name. Comes back unless it has been given up.
class SetAside {
 public:
  explicit SetAside(const fs::path& path)
      : path_(path), aside_(path.parent_path() / make_temporary_name()) {
    if (::rename(path_.c_str(), aside_.c_str()) == 0) {
      moved_ = true;
    } else if (errno != ENOENT) {
      fail(path_, "move the old file away", errno);
    }
  }
  ~SetAside() {
    if (moved_) ::rename(aside_.c_str(), path_.c_str());
  }
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;
  void give_up() {
    if (std::exchange(moved_, false)) ::unlink(aside_.c_str());
  }

 private:
  fs::path path_;
  fs::path aside_;
  bool moved_ = false;
};

void replace_in_place(const fs::path& folder, const std::vector<FileContent>& files) {
  std::vector<std::unique_ptr<DurableFile>> prepared;
  for (const FileContent& file : files) prepared.push_back(prepare(folder, file));
  const fs::path last = folder / files.back().name;
  std::optional<SetAside> old_last;
  if (!has_content(last, files.back().parts)) {
    old_last.emplace(last);
    if (const int error = sync_folder(folder); error != 0) fail(folder, "sync it", error);
  }
  // A sync between, so that a crash of the machine cannot keep the last name and lose another. If
  // it fails the rest is done all the same: then at least this machine sees a whole folder.
  int first_error = 0;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    prepared[i]->publish(FolderSync::kLater);
    if (old_last) old_last->give_up();  // from now on it would belong to other files
    if (i + 2 < prepared.size()) continue;
    const int error = sync_folder(folder);
    if (first_error == 0) first_error = error;
  }
  if (first_error != 0) throw_uncertain(folder, first_error);
}

}  // namespace

void require_writable_folder(const fs::path& folder) {
  const Place place = find_place(folder);
  if (place.exists) {
    require_writable_file(place.target / make_temporary_name());
  } else {
    const StagingFolder probe(place, {});
  }
}

void replace_folder_files(const fs::path& folder, const std::vector<FileContent>& files) {
  require(!files.empty(), "replace_folder_files: no files");
  const Place place = find_place(folder);
  const auto& [target, parent, exists, link] = place;
  // A name that cannot be exchanged: "." and "..", or a link to the folder.
  const bool plain = target.filename() != "." && target.filename() != ".." && !target.empty() &&
                     target.has_filename() && !link;
  if (exists && (!plain || !holds_only(target, files))) return replace_in_place(target, files);

  StagingFolder staging(place, files);
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
  if (::stat(target.c_str(), &old) == 0 &&
      ::chmod(staging.path().c_str(), old.st_mode & 07777) != 0) {
    fail(target, "give the new folder its mode", errno);
  }
  if (::renameat2(AT_FDCWD, staging.path().c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) !=
      0) {
    staging.remove();  // no such call here, or the folder is a mount point
    return replace_in_place(target, files);
  }
  sync_parent(target, parent);
  staging.remove();  // what now has the temporary name: the old files
}

}  // namespace reprise
