// Writes small GGUF files for tests, valid ones and others: counts, version and bytes can be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::test {

class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  // of the data; the key is the caller's to add

  // A key with the bytes of a value of GGUF's type number `type`.
  void key(std::string_view name, std::uint32_t type, std::string_view value);
  void u32(std::string_view name, std::uint32_t value);
  void f32(std::string_view name, float value);
  void string(std::string_view name, std::string_view value);
  // A tensor of GGUF's type number `type`, dims[0] fastest.
  void tensor(std::string_view name, std::uint32_t type, const std::vector<std::int64_t>& dims,
              std::string_view data);
  // The same, claiming to lie at `offset` whatever data there is.
  void tensor_at(std::string_view name, std::uint32_t type, const std::vector<std::int64_t>& dims,
                 std::uint64_t offset);

  std::string image() const;

 private:
  std::uint64_t keys_ = 0, tensors_ = 0;
  std::string metadata_, infos_, data_;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string bytes_of(const std::vector<float>& values);
std::string gguf_string(std::string_view text);  // length and bytes

}  // namespace reprise::test
