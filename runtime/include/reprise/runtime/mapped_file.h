// A file mapped read-only into memory: pages are read when they are touched and belong to the page
// cache, never to this process. Another process that shortens the file while it is mapped makes the
// next access to the missing part fatal (SIGBUS); replacing it by rename is safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace reprise {

class MappedFile {
 public:
  // Throws InputError quoting the path when it is missing, unreadable, empty or no regular file.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }
  // A part of the file. Throws InputError when it does not lie inside.
  std::span<const std::byte> part(std::int64_t offset, std::int64_t bytes) const;

  // Says that these bytes have been used up: whole pages inside them leave this process's memory.
  // They stay readable. Only advice; failure is ignored.
  void drop(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace reprise
