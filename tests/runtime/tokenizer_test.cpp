// Byte-level BPE on a small vocabulary: pieces, merges, control tokens, odd input.
#include "reprise/runtime/tokenizer.h"

#include <boost/test/unit_test.hpp>

#include "reprise/kernels/error.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/pre_tokenizer.h"
#include "tests/support/random.h"
#include "tests/support/small_vocabulary.h"

namespace reprise::test {
namespace {

std::vector<std::string> pieces(const char* name, const std::string& text) {
  const PreTokenizer pre(name, "test");
  std::vector<std::string> list;
  for (const std::string_view piece : pre.split(text)) list.emplace_back(piece);
  return list;
}

// Token strings of an encoding, in plain bytes.
std::vector<std::string> tokens(const Tokenizer& tokenizer, const std::string& text,
                                SpecialTokens special = SpecialTokens::kPlain) {
  std::vector<std::string> list;
  for (const std::int32_t id : tokenizer.encode(text, special)) {
    list.push_back(tokenizer.decode({&id, 1}));
  }
  return list;
}

using Strings = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_CASE(gpt2_pieces) {
  const auto expect = [](const std::string& text, const Strings& expected) {
    const Strings found = pieces("gpt-2", text);
    BOOST_CHECK_EQUAL_COLLECTIONS(found.begin(), found.end(), expected.begin(), expected.end());
  };
  expect("Hello world", {"Hello", " world"});
  expect("we'll don't", {"we", "'ll", " don", "'t"});
  expect("a  b", {"a", " ", " b"});
  expect("a \n\n b  ", {"a", " \n\n", " b", "  "});
  expect("in 1905, ok", {"in", " 1905", ",", " ok"});
  // Letters and digits of any script; a no-break space is white space.
  expect("\u00e9t\u00e9 \u0967\u0968 \u4f60\u597d",
         {"\u00e9t\u00e9", " \u0967\u0968", " \u4f60\u597d"});
  expect("x\u00a0y", {"x", "\u00a0", "y"});
  expect("\U0001f600!", {"\U0001f600!"});
}

BOOST_AUTO_TEST_CASE(smollm_cuts_out_every_digit) {
  const Strings expected = {"in", " ", "1", "9", "0", "5", ",", " ok"};
  const Strings found = pieces("smollm", "in 1905, ok");
  BOOST_CHECK_EQUAL_COLLECTIONS(found.begin(), found.end(), expected.begin(), expected.end());
}

BOOST_AUTO_TEST_CASE(an_unknown_pre_tokeniser_is_named) {
  BOOST_CHECK_EXCEPTION(PreTokenizer("default", "file"), InputError, [](const InputError& e) {
    return std::string(e.what()).find("\"default\"; known: gpt-2, smollm") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(merges_apply_by_rank_then_from_the_left) {
  const Tokenizer tokenizer(small_vocabulary(), "test");
  const auto expect = [&](const std::string& text, const Strings& expected) {
    const Strings found = tokens(tokenizer, text);
    BOOST_CHECK_EQUAL_COLLECTIONS(found.begin(), found.end(), expected.begin(), expected.end());
  };
  expect("hello world", {"hello", " world"});
  // "a b" outranks "b c", so bc stays apart.
  expect("abc", {"abc"});
  expect("bc", {"bc"});
  expect("aaaaa", {"aaaa", "a"});
  expect("aaa", {"aa", "a"});
  expect("", {});
}

BOOST_AUTO_TEST_CASE(decoding_gives_the_text_back) {
  Random random(test_seed(40));
  const Tokenizer tokenizer(small_vocabulary(), "test");
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::int64_t i = random.between(0, 40); i > 0; --i) {
      // Any scalar value up to U+FFFF but the surrogates, often an ASCII one.
      const std::int64_t c =
          random.uniform() < 0.5 ? random.between(0, 127) : random.between(128, 0xd7ff);
      if (c < 0x80) {
        text += static_cast<char>(c);
      } else if (c < 0x800) {
        text += static_cast<char>(0xc0 | (c >> 6));
        text += static_cast<char>(0x80 | (c & 0x3f));
      } else {
        text += static_cast<char>(0xe0 | (c >> 12));
        text += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
        text += static_cast<char>(0x80 | (c & 0x3f));
      }
    }
    BOOST_TEST(tokenizer.decode(tokenizer.encode(text, SpecialTokens::kPlain)) == text);
  }
}

BOOST_AUTO_TEST_CASE(control_tokens_count_only_where_they_are_meant) {
  const Tokenizer tokenizer(small_vocabulary(), "test");
  const std::string text = "<|im_start|>hello<|im_end|>";
  const auto parsed = tokenizer.encode(text, SpecialTokens::kParse);
  BOOST_TEST_REQUIRE(parsed.size() == 3u);
  BOOST_TEST(parsed[0] == tokenizer.find("<|im_start|>").value());
  BOOST_TEST(parsed[2] == tokenizer.find("<|im_end|>").value());
  BOOST_TEST(tokenizer.decode(parsed) == "hello");  // control tokens are no text
  const auto plain = tokenizer.encode(text, SpecialTokens::kPlain);
  BOOST_TEST(plain.size() > 3u);
  BOOST_TEST(tokenizer.decode(plain) == text);
}

BOOST_AUTO_TEST_CASE(bytes_without_a_token_are_dropped_and_counted) {
  TokenizerData data = small_vocabulary();
  for (std::string& token : data.tokens) {
    if (token == "z") token = "zz-unused";
  }
  const Tokenizer tokenizer(std::move(data), "test");
  std::int64_t dropped = 0;
  const auto ids = tokenizer.encode("azbz", SpecialTokens::kPlain, &dropped);
  BOOST_TEST(tokenizer.decode(ids) == "ab");
  BOOST_TEST(dropped == 2);
}

BOOST_AUTO_TEST_CASE(text_must_be_utf8) {
  const Tokenizer tokenizer(small_vocabulary(), "test");
  for (const std::string& bad : {std::string("ab\xff"), std::string("ab\xed\xa0\x80"),
                                 std::string("ab\xc0\x80"), std::string("ab\xe2\x82")}) {
    BOOST_CHECK_EXCEPTION(tokenizer.encode(bad, SpecialTokens::kPlain), InputError,
                          [](const InputError& e) {
                            return std::string(e.what()).find("byte 2") != std::string::npos;
                          });
  }
  BOOST_TEST(first_malformed_utf8("\xf4\x8f\xbf\xbf") == std::string::npos);
  BOOST_TEST(first_malformed_utf8("\xf4\x90\x80\x80") == 0u);
}

BOOST_AUTO_TEST_CASE(a_megabyte_without_spaces_is_no_trouble) {
  const Tokenizer tokenizer(small_vocabulary(), "test");
  const std::string word(1 << 20, 'a');
  BOOST_TEST(tokenizer.encode(word, SpecialTokens::kPlain).size() == (1u << 18));
  for (const std::string space : {" ", "\u3000"}) {
    std::string text;
    for (int i = 0; i < (1 << 20); ++i) text += space;
    text += "x";
    BOOST_TEST(tokenizer.decode(tokenizer.encode(text, SpecialTokens::kPlain)) == text);
  }
}

BOOST_AUTO_TEST_CASE(inconsistent_vocabularies_are_refused) {
  TokenizerData data = small_vocabulary();
  data.merges.push_back("q qq");
  BOOST_CHECK_THROW(Tokenizer(data, "test"), InputError);
  data.merges.back() = "noseparator";
  BOOST_CHECK_THROW(Tokenizer(data, "test"), InputError);
  data.merges.pop_back();
  data.token_types.pop_back();
  BOOST_CHECK_THROW(Tokenizer(data, "test"), InputError);
  data.token_types.clear();
  data.eos = 100000;
  BOOST_CHECK_THROW(Tokenizer(data, "test"), InputError);
}

}  // namespace reprise::test
