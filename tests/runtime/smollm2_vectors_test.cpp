// The tokenizer of SmolLM2's GGUF file against Hugging Face's ids. Skipped where the file is not.
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <filesystem>

#include "reprise/runtime/chat.h"
#include "reprise/runtime/gguf.h"
#include "tests/runtime/tokenizer_vectors.h"

namespace reprise::test {
namespace {

// Disables the suite where the model is not; ctest takes the message for a skip.
boost::test_tools::assertion_result model_is_here(boost::unit_test::test_unit_id) {
  const bool here = std::filesystem::exists(REPRISE_REAL_MODEL);
  if (!here) std::printf("skipped: there is no %s\n", REPRISE_REAL_MODEL);
  return here;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(smollm2, *boost::unit_test::precondition(model_is_here))

BOOST_AUTO_TEST_CASE(smollm2_gives_the_ids_of_hugging_face) {
  const Tokenizer tokenizer = read_tokenizer(GgufFile(REPRISE_REAL_MODEL));
  BOOST_TEST(tokenizer.vocab_size() == 49152);
  check_token_vectors(tokenizer, token_vectors("published.jsonl", "smollm2"));
  check_token_vectors(tokenizer, token_vectors("random.jsonl", "smollm2"));
}

// U+0004 and U+0006 are two of the 21 bytes that SmolLM2's vocabulary lacks.
BOOST_AUTO_TEST_CASE(smollm2_drops_bytes_it_has_no_token_for) {
  const Tokenizer tokenizer = read_tokenizer(GgufFile(REPRISE_REAL_MODEL));
  std::int64_t dropped = 0;
  tokenizer.encode("a\x04 b\x06", SpecialTokens::kPlain, &dropped);
  BOOST_TEST(dropped == 2);
}

// Parsing the text that the model's own template renders must give the ids of render_chat.
BOOST_AUTO_TEST_CASE(smollm2_conversations_are_what_its_template_renders) {
  const GgufFile file(REPRISE_REAL_MODEL);
  const Tokenizer tokenizer = read_tokenizer(file);
  const ChatFormat chat =
      recognise_chat_format(std::string(file.string("tokenizer.chat_template")), "test");
  const std::string rendered =
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
      "<|im_end|>\n<|im_start|>user\nWhat is 12 x 12?<|im_end|>\n"
      "<|im_start|>assistant\nIt is 144.<|im_end|>\n";
  const Sample sample =
      render_chat(tokenizer, chat, {{"user", "What is 12 x 12?"}, {"assistant", "It is 144."}});
  const auto expected = tokenizer.encode(rendered, SpecialTokens::kParse);
  BOOST_CHECK_EQUAL_COLLECTIONS(sample.ids.begin(), sample.ids.end(), expected.begin(),
                                expected.end());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
