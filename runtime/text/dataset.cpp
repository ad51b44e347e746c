#include "reprise/runtime/dataset.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>

#include "reprise/kernels/error.h"
#include "reprise/kernels/ops/cross_entropy.h"
#include "reprise/runtime/quoted.h"
#include "runtime/io/strict_json.h"

namespace reprise {
namespace {

// Longer lines are somebody's mistake; without a limit one line could fill the memory.
constexpr std::size_t kLongestLine = std::size_t{64} << 20;

// Reads up to the next newline without keeping more than the limit. False at the end of the file.
bool next_line(std::istream& file, std::string& line, const std::string& where) {
  line.clear();
  for (int c = file.get(); c != std::istream::traits_type::eof(); c = file.get()) {
    if (c == '\n') return true;
    if (line.size() >= kLongestLine) {
      throw InputError(where + ": the line is longer than 64 MiB");
    }
    line += static_cast<char>(c);
  }
  if (file.bad()) throw InputError(where + ": reading failed");
  return !line.empty();
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

Sample whole_text(const Tokenizer& tokenizer, const std::string& text, std::int64_t* dropped) {
  Sample sample;
  if (tokenizer.add_bos() && tokenizer.bos() >= 0) sample.ids.push_back(tokenizer.bos());
  const auto ids = tokenizer.encode(text, SpecialTokens::kPlain, dropped);
  sample.ids.insert(sample.ids.end(), ids.begin(), ids.end());
  if (tokenizer.eos() >= 0) sample.ids.push_back(tokenizer.eos());
  sample.labels = sample.ids;
  return sample;
}

Sample continuation(const Tokenizer& tokenizer, const std::string& prompt,
                    const std::string& completion, std::int64_t* dropped) {
  // Prompt and completion are tokenised apart, so that the tokens of the prompt are those that a
  // caller will send later.
  Sample sample;
  if (tokenizer.add_bos() && tokenizer.bos() >= 0) sample.ids.push_back(tokenizer.bos());
  const auto before = tokenizer.encode(prompt, SpecialTokens::kPlain, dropped);
  sample.ids.insert(sample.ids.end(), before.begin(), before.end());
  sample.labels.assign(sample.ids.size(), kIgnoredLabel);
  auto after = tokenizer.encode(completion, SpecialTokens::kPlain, dropped);
  if (tokenizer.eos() >= 0) after.push_back(tokenizer.eos());
  sample.ids.insert(sample.ids.end(), after.begin(), after.end());
  sample.labels.insert(sample.labels.end(), after.begin(), after.end());
  return sample;
}

enum class Shape : std::uint8_t { kText, kContinuation, kInstruction };
const std::map<std::string, Shape, std::less<>> kKeys = {{"text", Shape::kText},
                                                         {"prompt", Shape::kContinuation},
                                                         {"completion", Shape::kContinuation},
                                                         {"instruction", Shape::kInstruction},
                                                         {"response", Shape::kInstruction}};
// Enough to tell a person what is not read; a hostile file could have millions.
constexpr std::size_t kMostIgnoredKeys = 16;

class LineReader {
 public:
  LineReader(const Tokenizer& tokenizer, const ChatFormat* chat, DataReport& report)
      : tokenizer_(tokenizer), chat_(chat), report_(report) {}

  Sample sample(const std::string& line, const std::string& where) const {
    const nlohmann::json object =
        parse_strict_json(line, where, {.max_bytes = std::int64_t{64} << 20});
    if (!object.is_object()) throw InputError(where + ": expected a JSON object");
    const Shape shape = shape_of(object, where);
    const auto text = [&](const char* key) { return json_string(object, key, where); };
    std::int64_t* dropped = &report_.dropped_bytes;
    if (shape == Shape::kText) return whole_text(tokenizer_, text("text"), dropped);
    if (shape == Shape::kContinuation) {
      return continuation(tokenizer_, text("prompt"), text("completion"), dropped);
    }
    const std::vector<ChatMessage> messages = {{"user", text("instruction")},
                                               {"assistant", text("response")}};
    if (chat_ == nullptr) {
      throw InputError(where + ": instructions need a chat format, and the model brings none");
    }
    return render_chat(tokenizer_, *chat_, messages, dropped);
  }

 private:
  Shape shape_of(const nlohmann::json& object, const std::string& where) const {
    std::set<Shape> shapes;
    for (const auto& [key, value] : object.items()) {
      const auto known = kKeys.find(key);
      if (known != kKeys.end()) {
        shapes.insert(known->second);
      } else if (report_.ignored_keys.size() < kMostIgnoredKeys) {
        report_.ignored_keys.insert(in_quotes(key));
      }
    }
    if (shapes.size() == 1) return *shapes.begin();
    throw InputError(where +
                     ": expected {\"text\"}, {\"prompt\", \"completion\"} or "
                     "{\"instruction\", \"response\"}, found " +
                     (shapes.empty() ? "none of these keys" : "keys of several"));
  }

  const Tokenizer& tokenizer_;
  const ChatFormat* chat_;
  DataReport& report_;
};

// Positions that carry loss: labels but the first, which nothing predicts.
std::int64_t targets_of(const Sample& sample) {
  if (sample.labels.empty()) return 0;
  return std::count_if(sample.labels.begin() + 1, sample.labels.end(),
                       [](std::int32_t label) { return label != kIgnoredLabel; });
}

void keep(Sample sample, std::int64_t line, std::int64_t seq, Dataset& data) {
  const auto length = static_cast<std::int64_t>(sample.ids.size());
  data.report.longest = std::max(data.report.longest, length);
  if (length > seq) {
    ++data.report.truncated;
    sample.ids.resize(static_cast<std::size_t>(seq));
    sample.labels.resize(static_cast<std::size_t>(seq));
  }
  const std::int64_t targets = targets_of(sample);
  if (targets == 0) {
    if (++data.report.dropped == 1) data.report.first_dropped = line;
    return;
  }
  data.report.tokens += static_cast<std::int64_t>(sample.ids.size());
  data.report.targets += targets;
  data.samples.push_back(std::move(sample));
}

}  // namespace

std::string to_string(const DataReport& report) {
  std::string text = std::to_string(report.lines) + " lines, " + std::to_string(report.tokens) +
                     " tokens, " + std::to_string(report.targets) + " with loss, longest " +
                     std::to_string(report.longest);
  const auto note = [&](std::int64_t count, const char* what) {
    if (count > 0) text += ", " + std::to_string(count) + what;
  };
  note(report.truncated, " truncated");
  note(report.dropped, " dropped because nothing in them carries loss");
  if (report.dropped > 0) text += " (the first: line " + std::to_string(report.first_dropped) + ")";
  note(report.dropped_bytes, " bytes without a token");
  const char* separator = ", not read: ";
  for (const std::string& key : report.ignored_keys) {
    text += separator + key;
    separator = ", ";
  }
  return text;
}

Dataset read_jsonl(const std::filesystem::path& path, const Tokenizer& tokenizer,
                   const ChatFormat* chat, std::int64_t seq) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    throw InputError(in_quotes(path) + ": cannot be opened for reading");
  }
  Dataset data;
  const LineReader reader(tokenizer, chat, data.report);
  std::string line;
  std::int64_t number = 0;
  const auto where = [&] { return in_quotes(path) + ":" + std::to_string(number + 1); };
  for (; next_line(file, line, where()); ++number) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (number == 0 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (is_blank(line)) continue;
    ++data.report.lines;
    keep(reader.sample(line, where()), number + 1, seq, data);
  }
  if (data.samples.empty()) {
    throw InputError(in_quotes(path) + ": no sample to train on (" + to_string(data.report) +
                     "); is --seq " + std::to_string(seq) + " shorter than the prompts?");
  }
  return data;
}

TokenBatch make_batch(const std::vector<const Sample*>& rows, std::int64_t seq,
                      std::int32_t padding) {
  TokenBatch batch{
      .batch = static_cast<std::int64_t>(rows.size()), .seq = seq, .input_ids = {}, .labels = {}};
  for (const Sample* row : rows) {
    const auto length = static_cast<std::int64_t>(row->ids.size());
    require(length <= seq, "a sample is longer than the batch");
    batch.real_tokens += length;
    batch.input_ids.insert(batch.input_ids.end(), row->ids.begin(), row->ids.end());
    batch.labels.insert(batch.labels.end(), row->labels.begin(), row->labels.end());
    const auto missing = static_cast<std::size_t>(seq - length);
    batch.input_ids.insert(batch.input_ids.end(), missing, padding);
    batch.labels.insert(batch.labels.end(), missing, kIgnoredLabel);
  }
  return batch;
}

namespace {

// A keyed permutation of [0, 2^bits): a Feistel network with a hash as its round function
// (Luby and Rackoff, 1988).
std::uint64_t permute(std::uint64_t index, unsigned half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = index >> half_bits, right = index & mask;
  for (std::uint64_t round = 0; round < 4; ++round) {
    std::uint64_t z = right + key + (round + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    const std::uint64_t next = left ^ ((z ^ (z >> 31)) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits) | right;
}

}  // namespace

std::int64_t SampleOrder::at(std::int64_t position) const {
  const auto count = static_cast<std::uint64_t>(samples_);
  const auto epoch = static_cast<std::uint64_t>(position / samples_);
  unsigned half_bits = 1;
  while ((std::uint64_t{1} << (2 * half_bits)) < count) ++half_bits;
  const std::uint64_t key = seed_ * 0xD1342543DE82EF95u + epoch;
  // Walks the cycle until it is back among the samples, which keeps it a permutation of them.
  auto index = static_cast<std::uint64_t>(position % samples_);
  do {
    index = permute(index, half_bits, key);
  } while (index >= count);
  return static_cast<std::int64_t>(index);
}

}  // namespace reprise
