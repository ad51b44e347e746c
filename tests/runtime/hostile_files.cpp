#include "tests/runtime/hostile_files.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

namespace reprise::test {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "reprise ü XXXXXX").native();
  BOOST_REQUIRE(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  BOOST_REQUIRE(file.good());
}

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(file.good(), path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(REPRISE_TEST_DATA) / "golden" / name;
}

std::string little_endian(std::uint64_t value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string safetensors_image(std::string_view header, std::size_t data_bytes) {
  return little_endian(header.size()) + std::string(header) + std::string(data_bytes, '\1');
}

std::string mutate_numbers(std::string_view json, std::int64_t file_bytes, Random& random) {
  struct Place {
    std::size_t begin, size;
  };
  std::vector<Place> places;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"' && (i == 0 || json[i - 1] != '\\')) in_string = !in_string;
    if (in_string || !std::isdigit(static_cast<unsigned char>(json[i]))) continue;
    const std::size_t begin = i;
    while (i < json.size() && std::isdigit(static_cast<unsigned char>(json[i]))) ++i;
    places.push_back({begin, i - begin});
  }
  const std::string values[] = {"0",
                                "1",
                                "-1",
                                "2147483647",
                                "2147483648",
                                "4294967296",
                                "4611686018427387903",
                                "9223372036854775807",
                                "18446744073709551612",
                                "18446744073709551616",
                                "1.5",
                                "1e2",
                                std::to_string(file_bytes + 1)};
  std::string text(json);
  const std::int64_t changes = places.empty() ? 0 : random.between(1, 3);
  for (std::int64_t n = 0; n < changes; ++n) {
    const auto last = static_cast<std::int64_t>(places.size()) - 1;
    const auto at = static_cast<std::size_t>(random.between(0, last));
    const std::string& value = values[random.between(0, std::ssize(values) - 1)];
    const auto grown =
        static_cast<std::ptrdiff_t>(value.size()) - static_cast<std::ptrdiff_t>(places[at].size);
    text.replace(places[at].begin, places[at].size, value);
    places[at].size = value.size();
    for (std::size_t later = at + 1; later < places.size(); ++later) {
      places[later].begin += static_cast<std::size_t>(grown);
    }
  }
  return text;
}

std::string mutate_bytes(std::string bytes, Random& random) {
  if (bytes.empty()) return bytes;
  const auto place = [&] {
    return static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(bytes.size()) - 1));
  };
  switch (random.between(0, 2)) {
    case 0:
      bytes.resize(place());
      break;
    case 1:
      bytes[place()] ^= static_cast<char>(1 << random.between(0, 7));
      break;
    default:
      for (std::int64_t n = random.between(1, 8); n > 0; --n) {
        bytes[place()] = static_cast<char>(random.between(-128, 127));
      }
  }
  return bytes;
}

std::int64_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;  // Linux counts in KiB
}

}  // namespace reprise::test
