#include "tests/runtime/tokenizer_vectors.h"

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

namespace reprise::test {

std::vector<TokenVector> token_vectors(const std::string& file, const char* model) {
  std::ifstream lines(REPRISE_TEST_DATA "/tokenizer/" + file);
  std::vector<TokenVector> vectors;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    vectors.push_back({object.at("text"), object.at(model)});
  }
  return vectors;
}

void check_token_vectors(const Tokenizer& tokenizer, const std::vector<TokenVector>& vectors) {
  for (const auto& [text, ids] : vectors) {
    BOOST_TEST_CONTEXT("text " << nlohmann::json(text).dump(-1, ' ', true)) {
      std::int64_t dropped = 0;
      const auto found = tokenizer.encode(text, SpecialTokens::kPlain, &dropped);
      BOOST_CHECK_EQUAL_COLLECTIONS(found.begin(), found.end(), ids.begin(), ids.end());
      if (dropped == 0) BOOST_TEST(tokenizer.decode(ids) == text);
    }
  }
}

}  // namespace reprise::test
