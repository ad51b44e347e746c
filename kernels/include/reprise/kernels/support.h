// The answer to "can you run this?": yes, or no and why.
#pragma once

#include <string>
#include <utility>

namespace reprise {

class [[nodiscard]] Support {
 public:
  static Support yes() { return Support({}); }
  static Support no(std::string reason) { return Support(std::move(reason)); }

  bool ok() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }

 private:
  explicit Support(std::string reason) : reason_(std::move(reason)) {}
  std::string reason_;
};

}  // namespace reprise
