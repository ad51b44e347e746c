#include "tests/support/made_up_root.h"

#include <stdlib.h>  // mkdtemp is not in <cstdlib>

#include <boost/test/unit_test.hpp>
#include <fstream>

namespace reprise::test {

MadeUpRoot::MadeUpRoot() {
  std::string path = (std::filesystem::temp_directory_path() / "root_XXXXXX").string();
  BOOST_REQUIRE(::mkdtemp(path.data()) != nullptr);
  path_ = path;
}

MadeUpRoot::~MadeUpRoot() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

MadeUpRoot& MadeUpRoot::file(const std::string& name, const std::string& text) {
  std::filesystem::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name) << text;
  return *this;
}

}  // namespace reprise::test
