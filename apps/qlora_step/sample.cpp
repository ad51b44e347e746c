#include "apps/qlora_step/sample.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include "apps/qlora_step/exit_code.h"
#include "apps/qlora_step/interrupt.h"
#include "reprise/runtime/quoted.h"

namespace reprise::qlora_step {
namespace {

// A prompt as a user's turn, or, without a chat format, as a text to be continued.
std::vector<std::int32_t> prompt_ids(const TextModel& text, const std::string& prompt) {
  if (text.chat) return render_prompt(text.tokenizer, *text.chat, prompt);
  std::vector<std::int32_t> ids;
  if (text.tokenizer.add_bos() && text.tokenizer.bos() >= 0) ids.push_back(text.tokenizer.bos());
  const auto words = text.tokenizer.encode(prompt, SpecialTokens::kPlain);
  ids.insert(ids.end(), words.begin(), words.end());
  return ids;
}

TokenBatch one_row(std::vector<std::int32_t> ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  return {
      .batch = 1, .seq = count, .input_ids = ids, .labels = std::move(ids), .real_tokens = count};
}

}  // namespace

std::string answer(Trainer& trainer, const TextModel& text, const std::string& prompt,
                   std::int64_t most_tokens) {
  std::vector<std::int32_t> ids = prompt_ids(text, prompt);
  if (ids.empty()) throw UsageError("--sample: the prompt has no token");
  const std::int32_t end_of_text = text.tokenizer.eos();
  const std::int32_t end_of_turn = text.tokenizer.find("<|im_end|>").value_or(end_of_text);
  const std::size_t first = ids.size();
  const std::int64_t longest = trainer.longest_sequence();
  if (static_cast<std::int64_t>(first) > longest) {
    throw UsageError("--sample: the prompt has " + std::to_string(first) +
                     " tokens, more than --seq " + std::to_string(longest));
  }
  std::string stopped;
  while (static_cast<std::int64_t>(ids.size() - first) < most_tokens && !interrupt_requested()) {
    if (static_cast<std::int64_t>(ids.size()) > longest) {
      stopped = " [stopped at --seq " + std::to_string(longest) + "]";
      break;
    }
    const std::vector<float> logits = trainer.next_logits(ids);
    const auto next =
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (next == end_of_turn || next == end_of_text) break;
    ids.push_back(next);
  }
  return text.tokenizer.decode(std::span(ids).subspan(first)) + stopped;
}

int print_nll(Trainer& trainer, const TextModel& text, const std::filesystem::path& file,
              std::int64_t seq, std::ostream& out) {
  const auto ids = text.tokenizer.encode(read_text(file), SpecialTokens::kPlain);
  const auto count = static_cast<std::int64_t>(ids.size());
  if (count < 2) throw InputError(in_quotes(file) + ": has fewer than two tokens");
  EvaluationResult sum;
  // A window begins with the last token of the one before, so that each token but the first is
  // predicted exactly once.
  for (std::int64_t begin = 0; begin + 1 < count; begin += seq - 1) {
    const std::int64_t end = std::min(count, begin + seq);
    const EvaluationResult part =
        trainer.evaluate(one_row({ids.begin() + begin, ids.begin() + end}));
    sum.nll_sum += part.nll_sum;
    sum.target_tokens += part.target_tokens;
    if (interrupt_requested()) return kExitInterrupted;
  }
  out << "tokens " << count << ", predicted " << sum.target_tokens << ", mean NLL "
      << sum.nll_sum / static_cast<double>(sum.target_tokens) << "\n";
  return kExitDone;
}

}  // namespace reprise::qlora_step
