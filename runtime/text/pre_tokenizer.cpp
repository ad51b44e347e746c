#include "runtime/text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdexcept>

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"

namespace reprise {
namespace {

// Unicode's White_Space, spelled out: PCRE2's own \s differs in a character or two.
#define REPRISE_WHITE_SPACE \
  "\\t-\\r "                \
  "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

// GPT-2's pattern (Radford et al., 2019).
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" REPRISE_WHITE_SPACE
                              "\\p{L}\\p{N}]+|[" REPRISE_WHITE_SPACE "]+(?![^" REPRISE_WHITE_SPACE
                              "])|[" REPRISE_WHITE_SPACE "]+";
// SmolLM cuts out every digit first.
constexpr const char* kEveryDigit = "\\p{N}";

#undef REPRISE_WHITE_SPACE

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;

Code compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (code == nullptr) throw Error(std::string("cannot compile the pattern ") + pattern);
  // Without a just-in-time compiler the interpreter does the same, slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// Calls piece(view) for every match and for every stretch between matches.
template <class Piece>
void cut(const pcre2_code* code, std::string_view text, Piece&& piece) {
  const Match match(pcre2_match_data_create_from_pattern(code, nullptr));
  if (match == nullptr) throw std::bad_alloc();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t at = 0;
  while (at < text.size()) {
    // The text is known to be well-formed, so PCRE2 need not look at all of it for every match.
    const int found =
        pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      throw Error("splitting text failed with PCRE2 error " + std::to_string(found) + " at byte " +
                  std::to_string(at));
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    if (span[1] <= span[0]) throw Error("a pre-tokeniser's pattern matched nothing");
    if (span[0] > at) piece(text.substr(at, span[0] - at));
    piece(text.substr(span[0], span[1] - span[0]));
    at = span[1];
  }
  if (at < text.size()) piece(text.substr(at));
}

}  // namespace

struct PreTokenizer::State {
  Code digits;  // null: none are cut out
  Code words;
};

PreTokenizer::PreTokenizer(const std::string& name, const std::string& source)
    : state_(std::make_unique<State>()) {
  if (name == "smollm") {
    state_->digits = compile(kEveryDigit);
  } else if (name != "gpt-2" && name != "gpt2") {
    throw InputError(source + ": tokenizer.ggml.pre is " + in_quotes(name) +
                     "; known: gpt-2, smollm");
  }
  state_->words = compile(kGpt2);
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  const auto words = [&](std::string_view part) {
    cut(state_->words.get(), part, [&](std::string_view piece) { pieces.push_back(piece); });
  };
  if (state_->digits == nullptr) {
    words(text);
  } else {
    cut(state_->digits.get(), text, words);
  }
  return pieces;
}

}  // namespace reprise
