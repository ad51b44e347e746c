// What a model says: answers to prompts, and how likely it finds a text.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

#include "apps/qlora_step/text_model.h"
#include "reprise/graphs/trainer.h"

namespace reprise::qlora_step {

// The answer to a prompt in the model's chat format: the likeliest token each time, until the end
// of the turn or `most_tokens`.
std::string answer(Trainer& trainer, const TextModel& text, const std::string& prompt,
                   std::int64_t most_tokens);

// --eval-nll: mean over the predicted tokens of the file, in windows of at most `seq` tokens.
// Returns the exit code.
int print_nll(Trainer& trainer, const TextModel& text, const std::filesystem::path& file,
              std::int64_t seq, std::ostream& out);

}  // namespace reprise::qlora_step
