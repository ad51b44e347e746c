// Cutting text into the pieces that BPE works on, with the Unicode-aware patterns that each family
// of models was trained with.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

class PreTokenizer {
 public:
  // "gpt-2" (also "gpt2") or "smollm". Throws InputError, with `source` in front, for others.
  PreTokenizer(const std::string& name, const std::string& source);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // The pieces of well-formed UTF-8, in order and without gaps; they point into `text`.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise
