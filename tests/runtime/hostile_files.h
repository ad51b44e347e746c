// What the tests of file readers share: a folder that goes away, files from bytes, a check that a
// reader refuses with the right message, and a mutator that knows where the numbers are.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/kernels/error.h"
#include "tests/support/random.h"

namespace reprise::test {

// Has a space and a letter outside ASCII in its name, so that every test also covers such paths.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_bytes(const std::filesystem::path& path, std::string_view bytes);
std::string read_bytes(const std::filesystem::path& path);
std::filesystem::path golden(const std::string& name);  // below tests/data/golden

// Length, header and that many bytes of data.
std::string safetensors_image(std::string_view header, std::size_t data_bytes);
// The bytes of a 64-bit little-endian number.
std::string little_endian(std::uint64_t value);

// `action` must throw exactly Exception, and each text must occur in its message.
template <class Exception, class Action>
void check_throws(Action&& action, std::initializer_list<std::string_view> texts) {
  try {
    action();
    BOOST_ERROR("expected an exception with: " << *texts.begin());
  } catch (const Exception& error) {
    for (const std::string_view text : texts) {
      BOOST_CHECK_MESSAGE(std::string_view(error.what()).find(text) != std::string_view::npos,
                          "\"" << text << "\" is not in: " << error.what());
    }
  }
}
template <class Action>
void check_refused(Action&& action, std::initializer_list<std::string_view> texts) {
  check_throws<InputError>(std::forward<Action>(action), texts);
}

// Changes 1 to 3 numbers of a JSON text to values at which sizes go wrong.
std::string mutate_numbers(std::string_view json, std::int64_t file_bytes, Random& random);
// A bit flip, a cut, or a few bytes overwritten.
std::string mutate_bytes(std::string bytes, Random& random);

// Largest resident size of this process so far, in bytes.
std::int64_t peak_memory();

}  // namespace reprise::test
