// Training text: JSON lines to token samples to batches.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "reprise/runtime/chat.h"
#include "reprise/runtime/token_batch.h"

namespace reprise {

struct DataReport {
  std::int64_t lines = 0;              // not counting empty ones
  std::int64_t truncated = 0;          // longer than the sequence
  std::int64_t dropped = 0;            // without a single token that carries loss, after truncation
  std::int64_t first_dropped = 0;      // its line, from 1; 0: none
  std::int64_t tokens = 0;             // of the samples that are kept
  std::int64_t targets = 0;            // of those, positions that carry loss
  std::int64_t longest = 0;            // before truncation
  std::int64_t dropped_bytes = 0;      // that the vocabulary has no token for
  std::set<std::string> ignored_keys;  // of the lines, beside the ones that are read; at most 16
};
std::string to_string(const DataReport& report);

struct Dataset {
  std::vector<Sample> samples;
  DataReport report;
};

// One object a line: {"text"}, {"prompt", "completion"} or {"instruction", "response"}.
// Instructions are rendered as a conversation; a prompt and its completion are joined as they are,
// with the loss on the completion and the end-of-text token; text has its loss everywhere. Throws
// InputError naming file and line for anything else: not JSON, not UTF-8, a missing or doubled key,
// keys of two shapes, a wrong type, a line over 64 MiB. Other keys are not read, but reported.
// `seq`: samples are cut to so many tokens.
Dataset read_jsonl(const std::filesystem::path& path, const Tokenizer& tokenizer,
                   const ChatFormat* chat, std::int64_t seq);

// Rows padded on the right to `seq`; padding has no loss.
TokenBatch make_batch(const std::vector<const Sample*>& rows, std::int64_t seq,
                      std::int32_t padding);

// Which samples make up which rows: every epoch has an order of its own, a function of the seed and
// the epoch alone, so that any step can be asked for at any time.
class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed) : samples_(samples), seed_(seed) {}
  // Index of the sample that is the `position`-th to be seen, from 0.
  std::int64_t at(std::int64_t position) const;

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
};

}  // namespace reprise
