// A byte-level vocabulary of a few hundred tokens, enough for words of tests, with ChatML's control
// tokens.
#pragma once

#include "reprise/runtime/tokenizer.h"

namespace reprise::test {

// The 256 bytes in GPT-2's order, the merges below, then <|im_start|>, <|im_end|>, <|endoftext|>
// (bos and eos are -1 and <|endoftext|>).
TokenizerData small_vocabulary();

// GPT-2's printable form of a byte.
std::string printable(unsigned char byte);

}  // namespace reprise::test
