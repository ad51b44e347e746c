#include "reprise/runtime/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <unordered_map>

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/pre_tokenizer.h"

namespace reprise {
namespace {

constexpr std::int32_t kControlType = 3, kUserDefinedType = 4;

struct Merge {
  std::int32_t rank = 0;
  std::int32_t result = 0;
};

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

// One symbol of a piece while it is being merged; a doubly linked list in an array.
struct Symbol {
  std::int32_t id = 0;
  std::int32_t previous = -1;
  std::int32_t next = -1;
};

// A pair of neighbours that could be merged. It is stale once one of them has changed.
struct Candidate {
  std::int32_t rank, position, left, right, result;
  // The lowest rank first, then the leftmost.
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

struct Tokenizer::State {
  PreTokenizer pre;
  std::vector<std::string> bytes;                          // of each token
  std::vector<std::int32_t> types;                         // of each token
  std::array<std::int32_t, 256> of_byte;                   // -1: the vocabulary has no token for it
  std::unordered_map<std::string_view, std::int32_t> ids;  // keys point into `bytes`
  std::unordered_map<std::uint64_t, Merge> merges;
  std::vector<std::int32_t> special;  // ids of control and user-defined tokens, longest first
  std::int32_t bos, eos;
  bool add_bos;

  void add_tokens(const TokenizerData& data, const std::string& source);
  void add_merges(const TokenizerData& data, const std::string& source);
  void merge_piece(std::string_view piece, std::vector<std::int32_t>& out,
                   std::int64_t& dropped) const;
  void encode_plain(std::string_view text, std::vector<std::int32_t>& out,
                    std::int64_t& dropped) const;
};

void Tokenizer::State::add_tokens(const TokenizerData& data, const std::string& source) {
  const std::size_t count = data.tokens.size();
  if (!data.token_types.empty() && data.token_types.size() != count) {
    throw InputError(source + ": tokenizer.ggml.token_type has " +
                     std::to_string(data.token_types.size()) + " entries for " +
                     std::to_string(count) + " tokens");
  }
  types = data.token_types.empty() ? std::vector<std::int32_t>(count, 1) : data.token_types;
  bytes.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool plain = types[i] == kControlType || types[i] == kUserDefinedType;
    if (plain || !bytes_of_alphabet(data.tokens[i], bytes[i])) bytes[i] = data.tokens[i];
  }
  of_byte.fill(-1);
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    ids.emplace(bytes[i], id);  // of equal tokens the first counts
    const bool is_special = types[i] == kControlType || types[i] == kUserDefinedType;
    if (is_special && !bytes[i].empty()) {
      special.push_back(id);
    } else if (bytes[i].size() == 1) {
      of_byte[static_cast<unsigned char>(bytes[i][0])] = id;
    }
  }
  std::stable_sort(special.begin(), special.end(), [&](std::int32_t a, std::int32_t b) {
    return bytes[static_cast<std::size_t>(a)].size() > bytes[static_cast<std::size_t>(b)].size();
  });
}

void Tokenizer::State::add_merges(const TokenizerData& data, const std::string& source) {
  std::string left, right;
  for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view merge = data.merges[rank];
    const std::size_t space = merge.find(' ');
    const bool well_formed = space != std::string_view::npos &&
                             bytes_of_alphabet(merge.substr(0, space), left) &&
                             bytes_of_alphabet(merge.substr(space + 1), right);
    const auto a = ids.find(left), b = ids.find(right), both = ids.find(left + right);
    if (!well_formed || a == ids.end() || b == ids.end() || both == ids.end()) {
      throw InputError(source + ": merge " + std::to_string(rank) + " of tokenizer.ggml.merges, " +
                       in_quotes(merge) + ", does not join two tokens into a third");
    }
    merges.emplace(pair_key(a->second, b->second),
                   Merge{static_cast<std::int32_t>(rank), both->second});
  }
}

void Tokenizer::State::merge_piece(std::string_view piece, std::vector<std::int32_t>& out,
                                   std::int64_t& dropped) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (const char c : piece) {
    const std::int32_t id = of_byte[static_cast<unsigned char>(c)];
    if (id < 0) {
      ++dropped;
      continue;
    }
    const auto index = static_cast<std::int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({id, index - 1, -1});
  }
  if (symbols.empty()) return;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::int32_t position) {
    if (position < 0) return;
    const Symbol& first = symbols[static_cast<std::size_t>(position)];
    if (first.next < 0) return;
    const std::int32_t second = symbols[static_cast<std::size_t>(first.next)].id;
    const auto found = merges.find(pair_key(first.id, second));
    if (found == merges.end()) return;
    queue.push({found->second.rank, position, first.id, second, found->second.result});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) consider(static_cast<std::int32_t>(i));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& first = symbols[static_cast<std::size_t>(best.position)];
    if (first.id != best.left || first.next < 0) continue;
    Symbol& second = symbols[static_cast<std::size_t>(first.next)];
    if (second.id != best.right) continue;
    first.id = best.result;
    second.id = -1;  // no candidate fits it any more
    first.next = second.next;
    if (first.next >= 0) symbols[static_cast<std::size_t>(first.next)].previous = best.position;
    consider(first.previous);
    consider(best.position);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    out.push_back(symbols[static_cast<std::size_t>(i)].id);
  }
}

void Tokenizer::State::encode_plain(std::string_view text, std::vector<std::int32_t>& out,
                                    std::int64_t& dropped) const {
  for (const std::string_view piece : pre.split(text)) merge_piece(piece, out, dropped);
}

Tokenizer::Tokenizer(TokenizerData data, const std::string& source) {
  state_ = std::make_unique<State>(State{.pre = PreTokenizer(data.pre, source),
                                         .bytes = {},
                                         .types = {},
                                         .of_byte = {},
                                         .ids = {},
                                         .merges = {},
                                         .special = {},
                                         .bos = data.bos,
                                         .eos = data.eos,
                                         .add_bos = data.add_bos});
  state_->add_tokens(data, source);
  state_->add_merges(data, source);
  const auto count = static_cast<std::int64_t>(data.tokens.size());
  for (const std::int32_t id : {data.bos, data.eos}) {
    if (id < -1 || id >= count) {
      throw InputError(source + ": special token id " + std::to_string(id) + " is outside the " +
                       std::to_string(count) + " tokens");
    }
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special,
                                            std::int64_t* dropped) const {
  // Positions within a piece are 32-bit.
  if (text.size() > std::numeric_limits<std::int32_t>::max()) {
    throw InputError("the text has " + std::to_string(text.size()) + " bytes, 2 GiB or more");
  }
  const std::size_t malformed = first_malformed_utf8(text);
  if (malformed != std::string_view::npos) {
    throw InputError("the text is not UTF-8 at byte " + std::to_string(malformed));
  }
  std::vector<std::int32_t> out;
  std::int64_t lost = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; special == SpecialTokens::kParse && at < text.size();) {
    const auto fits = [&](std::int32_t id) {
      return text.substr(at).starts_with(state_->bytes[static_cast<std::size_t>(id)]);
    };
    const auto found = std::find_if(state_->special.begin(), state_->special.end(), fits);
    if (found == state_->special.end()) {
      ++at;
      continue;
    }
    state_->encode_plain(text.substr(begin, at - begin), out, lost);
    out.push_back(*found);
    begin = at += state_->bytes[static_cast<std::size_t>(*found)].size();
  }
  state_->encode_plain(text.substr(begin), out, lost);
  if (dropped != nullptr) *dropped += lost;
  return out;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const auto index = static_cast<std::size_t>(id);
    require(id >= 0 && index < state_->bytes.size(), "a token id is outside the vocabulary");
    if (state_->types[index] != kControlType) text += state_->bytes[index];
  }
  return text;
}

std::int64_t Tokenizer::vocab_size() const {
  return static_cast<std::int64_t>(state_->bytes.size());
}

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const {
  const auto found = state_->ids.find(token);
  return found == state_->ids.end() ? std::nullopt : std::optional(found->second);
}

std::int32_t Tokenizer::bos() const { return state_->bos; }
std::int32_t Tokenizer::eos() const { return state_->eos; }
bool Tokenizer::add_bos() const { return state_->add_bos; }

}  // namespace reprise
