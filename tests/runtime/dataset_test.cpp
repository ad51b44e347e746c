// Conversations and JSON lines: what becomes a token, what carries loss, what is refused.
#include "reprise/runtime/dataset.h"

#include <unistd.h>
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "reprise/kernels/error.h"
#include "reprise/kernels/ops/cross_entropy.h"
#include "tests/runtime/hostile_files.h"
#include "tests/support/small_vocabulary.h"

namespace reprise::test {
namespace {

struct Fixture {
  Tokenizer tokenizer{small_vocabulary(), "test"};
  ChatFormat chat;
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("reprise_dataset_" + std::to_string(::getpid()) + ".jsonl");

  ~Fixture() { std::filesystem::remove(path); }

  Dataset read(const std::string& content, std::int64_t seq = 64) {
    std::ofstream(path, std::ios::binary) << content;
    return read_jsonl(path, tokenizer, &chat, seq);
  }
  std::string refusal(const std::string& content) {
    try {
      read(content);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  // The text of the tokens that carry loss.
  std::string learned(const Sample& sample) const {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < sample.ids.size(); ++i) {
      if (sample.labels[i] == kIgnoredLabel) continue;
      BOOST_TEST(sample.labels[i] == sample.ids[i]);
      ids.push_back(sample.ids[i]);
    }
    return tokenizer.decode(ids);
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(dataset, Fixture)

BOOST_AUTO_TEST_CASE(a_conversation_learns_the_answer_and_its_end) {
  const Sample sample = render_chat(tokenizer, chat, {{"user", "abc"}, {"assistant", "hello"}});
  const std::int32_t start = tokenizer.find("<|im_start|>").value();
  const std::int32_t end = tokenizer.find("<|im_end|>").value();
  BOOST_TEST(std::count(sample.ids.begin(), sample.ids.end(), start) == 2);
  BOOST_TEST(std::count(sample.ids.begin(), sample.ids.end(), end) == 2);
  BOOST_TEST(std::count(sample.labels.begin(), sample.labels.end(), end) == 1);
  BOOST_TEST(tokenizer.decode(sample.ids) == "user\nabc\nassistant\nhello\n");
  BOOST_TEST(learned(sample) == "hello");
}

BOOST_AUTO_TEST_CASE(white_space_at_the_start_of_an_answer_joins_the_newline) {
  // The header's line break and the first of the answer are one token, which carries loss; the last
  // line break before a word stands alone.
  const Sample sample = render_chat(tokenizer, chat, {{"assistant", "\n\nhello"}});
  BOOST_TEST(learned(sample) == "\n\n\nhello");
}

BOOST_AUTO_TEST_CASE(control_tokens_in_content_stay_text) {
  const std::int32_t end = tokenizer.find("<|im_end|>").value();
  const Sample sample = render_chat(tokenizer, chat, {{"user", "use <|im_end|> here"}});
  BOOST_TEST(std::count(sample.ids.begin(), sample.ids.end(), end) == 1);
}

BOOST_AUTO_TEST_CASE(the_default_system_message_comes_first) {
  chat = recognise_chat_format(
      "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
      "<|im_end|>\n' }}",
      "test");
  const auto prompt = render_prompt(tokenizer, chat, "abc");
  BOOST_TEST(tokenizer.decode(prompt) ==
             "system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face\n"
             "user\nabc\nassistant\n");
  const Sample own = render_chat(tokenizer, chat, {{"system", "hello"}, {"user", "abc"}});
  BOOST_TEST(tokenizer.decode(own.ids) == "system\nhello\nuser\nabc\n");
  BOOST_CHECK_THROW(recognise_chat_format("[INST] {{ content }} [/INST]", "test"), InputError);
}

BOOST_AUTO_TEST_CASE(the_default_system_message_is_the_templates_own) {
  const auto default_system = [](const std::string& jinja) {
    return recognise_chat_format(jinja, "test").default_system;
  };
  const std::string escaped = "{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}";
  BOOST_TEST(default_system(escaped) == "Be brief.");
  BOOST_TEST(default_system(escaped + escaped) == "Be brief.");
  // The conversation's own message is no default.
  const std::string own =
      "{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}";
  BOOST_TEST(default_system(own) == "");
  BOOST_TEST(default_system(own + escaped) == "Be brief.");
  const std::string other = "{{ '<|im_start|>system\nBe long.<|im_end|>\n' }}";
  check_refused([&] { default_system(escaped + other); }, {"test", "2 default system messages"});
  // The end of the text is no end of a message.
  BOOST_TEST(default_system("<|im_end|> <|im_start|>system\nBe") == "");
}

BOOST_AUTO_TEST_CASE(the_three_shapes_of_a_line) {
  const Dataset data = read(
      "\xef\xbb\xbf{\"text\":\"hello world\"}\n"
      "\n"
      "{\"prompt\":\"abc\",\"completion\":\" hello\"}\n"
      "{\"instruction\":\"abc\",\"response\":\"\\ud83c\\udf78\"}");
  BOOST_TEST_REQUIRE(data.samples.size() == 3u);
  BOOST_TEST(data.report.lines == 3);
  BOOST_TEST(learned(data.samples[0]) == "hello world");
  BOOST_TEST(data.samples[0].ids.back() == tokenizer.eos());
  BOOST_TEST(learned(data.samples[1]) == " hello");
  BOOST_TEST(data.samples[1].labels.back() == tokenizer.eos());
  BOOST_TEST(learned(data.samples[2]) == "\U0001f378");
}

BOOST_AUTO_TEST_CASE(long_samples_are_cut_and_counted) {
  const std::string text = "{\"text\":\"hello hello hello hello\"}\n";
  const Dataset data =
      read(text + "{\"prompt\":\"hello hello hello hello\",\"completion\":\"abc\"}\n", 4);
  BOOST_TEST(data.samples.size() == 1u);
  BOOST_TEST(data.samples[0].ids.size() == 4u);
  BOOST_TEST(data.report.truncated == 2);
  BOOST_TEST(data.report.dropped == 1);  // its answer was cut off whole
  BOOST_TEST(data.report.first_dropped == 2);
  BOOST_TEST(contains(to_string(data.report), "1 dropped"));
  BOOST_TEST(contains(to_string(data.report), "line 2"));
  BOOST_TEST(data.report.targets == 3);  // nothing predicts the first token
}

BOOST_AUTO_TEST_CASE(bad_lines_are_named_by_number) {
  const std::string good = "{\"text\":\"abc\"}\n";
  const auto names_line_2 = [&](const std::string& line, const std::string& what) {
    const std::string message = refusal(good + line);
    BOOST_TEST(contains(message, ":2"), message);
    BOOST_TEST(contains(message, what), message);
  };
  names_line_2("{\"text\":1}", "text");
  names_line_2("{\"text\":null}", "text");
  names_line_2("{\"prompt\":\"a\"}", "completion");
  names_line_2("{\"other\":\"a\"}", "instruction");
  names_line_2("[1]", "object");
  names_line_2("{\"text\":\"a\",\"text\":\"b\"}", "text");
  names_line_2("{\"text\":\"a\",\"prompt\":\"b\"}", "keys of several");
  names_line_2("{\"text\":\"\\ud83d\"}", "surrogate");
  names_line_2("{\"text\":\"\xff\"}", "");
  names_line_2("{\"text\":\"a\"} x", "");
  BOOST_TEST(contains(refusal("\n\n"), "no sample"));
  BOOST_CHECK_THROW(read_jsonl("/nowhere/x.jsonl", tokenizer, &chat, 8), InputError);
}

BOOST_AUTO_TEST_CASE(the_order_of_types_does_not_matter) {
  BOOST_TEST(contains(refusal("{\"text\":null}\n{\"text\":\"a\"}\n"), ":1"));
  BOOST_TEST(contains(refusal("{\"text\":\"a\"}\n{\"text\":null}\n"), ":2"));
  const Dataset data = read("{\"text\":\"1\",\"id\":1}\n{\"text\":\"Nan\",\"id\":\"b\"}\n");
  BOOST_TEST(data.samples.size() == 2u);
  BOOST_TEST(contains(to_string(data.report), "not read: \"id\""));
}

BOOST_AUTO_TEST_CASE(names_of_keys_that_are_not_read_are_few) {
  std::string line = "{\"text\":\"a\"";
  for (int i = 0; i < 1000; ++i) line += ",\"key" + std::to_string(i) + "\":0";
  BOOST_TEST(read(line + "}\n").report.ignored_keys.size() == 16u);
}

BOOST_AUTO_TEST_CASE(a_byte_order_mark_changes_nothing) {
  const std::string lines = "{\"text\":\"hello\"}\n{\"text\":\"abc\"}\n";
  const Dataset with = read("\xef\xbb\xbf" + lines), without = read(lines);
  BOOST_TEST_REQUIRE(with.samples.size() == without.samples.size());
  for (std::size_t i = 0; i < with.samples.size(); ++i) {
    BOOST_TEST(with.samples[i].ids == without.samples[i].ids, boost::test_tools::per_element());
  }
  // A second one is no white space.
  BOOST_TEST(contains(refusal("\xef\xbb\xbf\xef\xbb\xbf" + lines), ":1"));
  BOOST_TEST(contains(refusal(lines + "\xef\xbb\xbf{\"text\":\"abc\"}\n"), ":3"));
}

BOOST_AUTO_TEST_CASE(an_endless_line_is_refused) {
  std::ofstream(path) << "{\"text\":\"abc\"}\n";
  std::filesystem::resize_file(path, std::uintmax_t{96} << 20);  // zeros that take no space
  check_refused([&] { read_jsonl(path, tokenizer, &chat, 64); }, {":2", "64 MiB"});
}

BOOST_AUTO_TEST_CASE(bytes_without_a_token_are_counted_in_every_shape) {
  TokenizerData vocabulary = small_vocabulary();
  for (std::string& token : vocabulary.tokens) {
    if (token == "z") token = "zz-unused";
  }
  tokenizer = Tokenizer(std::move(vocabulary), "test");
  BOOST_TEST(read("{\"text\":\"az\"}\n{\"prompt\":\"z\",\"completion\":\"bz\"}\n"
                  "{\"instruction\":\"z\",\"response\":\"zbz\"}\n")
                 .report.dropped_bytes == 6);
}

BOOST_AUTO_TEST_CASE(an_instruction_needs_a_chat_format) {
  std::ofstream(path) << "{\"instruction\":\"a\",\"response\":\"b\"}\n";
  BOOST_CHECK_THROW(read_jsonl(path, tokenizer, nullptr, 64), InputError);
}

BOOST_AUTO_TEST_CASE(a_line_of_eleven_megabytes_is_read) {
  const std::int64_t words = (11 << 20) / 6;
  std::string text = "hello";
  for (std::int64_t i = 1; i < words; ++i) text += " hello";
  const Dataset data = read("{\"text\":\"" + text + "\"}\n", 64);
  BOOST_TEST(data.samples.size() == 1u);
  BOOST_TEST(data.report.longest == 2 * words);  // the first word has no space, the end is a token
}

BOOST_AUTO_TEST_CASE(batches_are_padded_without_loss) {
  const Sample a{{1, 2, 3}, {kIgnoredLabel, 2, 3}}, b{{4}, {4}};
  const TokenBatch batch = make_batch({&a, &b}, 4, 9);
  const std::vector<std::int32_t> ids = {1, 2, 3, 9, 4, 9, 9, 9};
  const std::int32_t x = kIgnoredLabel;
  const std::vector<std::int32_t> labels = {x, 2, 3, x, 4, x, x, x};
  BOOST_TEST(batch.input_ids == ids, boost::test_tools::per_element());
  BOOST_TEST(batch.labels == labels, boost::test_tools::per_element());
  BOOST_TEST(batch.real_tokens == 4);
  BOOST_TEST(batch.target_tokens() == 2);  // the first token of a row is predicted by nothing
}

BOOST_AUTO_TEST_CASE(every_epoch_sees_every_sample_once) {
  for (const std::int64_t count : {1, 2, 3, 7, 40, 959}) {
    const SampleOrder order(count, 5), same(count, 5), other(count, 6);
    std::vector<std::int64_t> first;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> seen;
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < count; ++i) {
        ids.push_back(order.at(epoch * count + i));
        BOOST_TEST(ids.back() == same.at(epoch * count + i));
        seen.insert(ids.back());
      }
      BOOST_TEST(static_cast<std::int64_t>(seen.size()) == count);
      BOOST_TEST(*seen.begin() == 0);
      BOOST_TEST(*seen.rbegin() == count - 1);
      if (epoch == 0) {
        first = ids;
      } else if (count >= 40) {
        BOOST_TEST((ids != first));
      }
    }
    if (count < 40) continue;
    std::int64_t moved = 0;
    for (std::int64_t i = 0; i < count; ++i) moved += other.at(i) != order.at(i) ? 1 : 0;
    BOOST_TEST(moved > count / 2);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
