// Files that are written whole or not at all, and that survive a crash of the program or the
// machine once they are reported written. The data goes to a temporary file in the target's own
// folder, is synced, and only then takes the target's name; until that moment the old file is
// untouched.
//
// Failures come in two kinds:
//   DurabilityUncertain  the new file has its name, but syncing the folder failed, so that a crash
//                        of the machine might still bring the old one back
//   anything else        not written: the old file, if there was one, is intact, the temporary
//   gone.
//                        DoesNotFit: no room on the disk, in the quota or under the size limit;
//                        UsageError: a path that cannot be written to; Error: the device failed
// After a failed fsync the pages count as clean although they never reached the disk, and a second
// fsync would report success; so nothing is ever synced twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "reprise/kernels/error.h"

namespace reprise {

struct DurabilityUncertain : Error {
  using Error::Error;
};

// Whether a rename is made durable at once, or with others by who called.
enum class FolderSync : std::uint8_t { kNow, kLater };

class DurableFile {
 public:
  // Creates the temporary. `bytes`: the size to come, reserved at once so that a full disk shows
  // before any work is done; 0: not known. The target may be missing or a regular file; a symbolic
  // link, a folder or a device is refused. The new file has the old one's mode, or 0666 & ~umask.
  explicit DurableFile(const std::filesystem::path& target, std::int64_t bytes = 0);
  // Removes the temporary unless publish() has run.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void append(std::span<const std::byte> bytes);
  // Makes the data durable under its temporary name.
  void finish();
  // Gives it the target's name and syncs the folder; calls finish() if that has not happened.
  void publish(FolderSync sync = FolderSync::kNow);

 private:
  [[noreturn]] void fail(const std::string& action, int error);

  std::filesystem::path target_;
  std::string target_name_;
  std::string temporary_name_;
  std::int64_t expected_bytes_ = 0;
  std::int64_t written_bytes_ = 0;
  int folder_ = -1;
  int file_ = -1;
  bool temporary_exists_ = false;
};

using ByteParts = std::vector<std::span<const std::byte>>;

// One file from parts that are written one after another.
void write_durably(const std::filesystem::path& path, const ByteParts& parts);

// Finds out before any work is done whether write_durably(path, ...) or replace_folder_files(path,
// ...) could create its files; throws what they would throw and leaves nothing behind.
void require_writable_file(const std::filesystem::path& path);
void require_writable_folder(const std::filesystem::path& folder);

struct FileContent {
  std::string name;  // a plain name inside the folder
  ByteParts parts;
};

// Replaces the files of a folder that belong together, so that no crash leaves a mix of old and new
// ones that could be read as a whole. `files.back()` is the one without which the folder means
// nothing to a reader (adapter_config.json).
//   - The folder does not exist: it is made under a temporary name beside the target and renamed.
//   - It holds nothing but such files: a new one is made and the two names are exchanged.
//   - It holds other things as well, or the file system cannot exchange names: all new files are
//     made durable beside the old ones first; then, if the last file's content changes, the old
//     last file is moved away, and each new one takes its name, the last one at the end. A crash in
//     those few renames leaves a folder without its last file, which readers refuse by name.
// The folder's parent must exist.
void replace_folder_files(const std::filesystem::path& folder,
                          const std::vector<FileContent>& files);

}  // namespace reprise
