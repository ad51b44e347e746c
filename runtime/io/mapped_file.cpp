#include "reprise/runtime/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"

namespace reprise {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* action) {
  throw InputError(in_quotes(path) + ": cannot " + action + ": " +
                   std::generic_category().message(errno));
}

// Closes on every way out of the constructor; a mapping outlives its descriptor.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Not blocking: opening a FIFO would otherwise wait for a writer for ever.
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(path_, "open");
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) fail(path_, "read the size of");
  if (S_ISDIR(status.st_mode)) throw InputError(in_quotes(path_) + ": is a directory, not a file");
  if (!S_ISREG(status.st_mode)) throw InputError(in_quotes(path_) + ": is not a regular file");
  if (status.st_size == 0) throw InputError(in_quotes(path_) + ": is empty");
  void* address =
      ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, file.fd, 0);
  if (address == MAP_FAILED) fail(path_, "map");
  data_ = static_cast<std::byte*>(address);
  size_ = status.st_size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(size_));
}

std::span<const std::byte> MappedFile::part(std::int64_t offset, std::int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > size_ || bytes > size_ - offset) {
    throw InputError(in_quotes(path_) + ": " + std::to_string(bytes) + " bytes at offset " +
                     std::to_string(offset) + " leave the file, which has " +
                     std::to_string(size_) + " bytes");
  }
  return {data_ + offset, static_cast<std::size_t>(bytes)};
}

void MappedFile::drop(std::span<const std::byte> part) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + part.size()) / page * page;
  if (last <= first) return;
  const std::size_t offset = first - reinterpret_cast<std::uintptr_t>(data_);
  ::madvise(data_ + offset, last - first, MADV_DONTNEED);
}

}  // namespace reprise
