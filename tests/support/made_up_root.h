// A made-up root folder with files of /proc and /sys, removed with its owner.
#pragma once

#include <filesystem>
#include <string>

namespace reprise::test {

class MadeUpRoot {
 public:
  MadeUpRoot();
  ~MadeUpRoot();
  MadeUpRoot(const MadeUpRoot&) = delete;
  MadeUpRoot& operator=(const MadeUpRoot&) = delete;

  MadeUpRoot& file(const std::string& name, const std::string& text);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace reprise::test
