// GPT-2's whole vocabulary against published ids.
#include <boost/test/unit_test.hpp>

#include "tests/runtime/hostile_files.h"
#include "tests/runtime/tokenizer_vectors.h"
#include "tests/support/small_vocabulary.h"

namespace reprise::test {
namespace {

// tests/data/README.md says how the file determines the vocabulary.
TokenizerData gpt2_vocabulary() {
  TokenizerData data;
  data.tokens = small_vocabulary().tokens;
  data.tokens.resize(256);  // the bytes, in GPT-2's order
  const std::string bytes = read_bytes(REPRISE_TEST_DATA "/tokenizer/gpt2_merges.bin");
  const auto id_at = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])) |
           static_cast<std::size_t>(static_cast<unsigned char>(bytes[at + 1])) << 8;
  };
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    const std::string left = data.tokens.at(id_at(at)), right = data.tokens.at(id_at(at + 2));
    data.merges.push_back(left + " " + right);
    data.tokens.push_back(left + right);
  }
  data.token_types.assign(data.tokens.size(), 1);
  data.tokens.emplace_back("<|endoftext|>");
  data.token_types.push_back(3);
  data.pre = "gpt-2";
  return data;
}

}  // namespace

BOOST_AUTO_TEST_CASE(gpt2_gives_the_published_ids) {
  const Tokenizer tokenizer(gpt2_vocabulary(), "test");
  BOOST_TEST(tokenizer.vocab_size() == 50257);
  const auto published = token_vectors("published.jsonl", "gpt2");
  BOOST_TEST(published.size() == 47u);
  check_token_vectors(tokenizer, published);
  const auto random = token_vectors("random.jsonl", "gpt2");
  BOOST_TEST(random.size() == 150u);
  check_token_vectors(tokenizer, random);
}

}  // namespace reprise::test
