// Reads a GGUF file front to back: header, metadata, tensor infos; then places the tensors. Each
// count and length is compared with the bytes left before anything is done with it.
#include "runtime/io/gguf_parse.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"
#include "runtime/io/checked.h"
#include "runtime/io/gguf_types.h"

namespace reprise {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF", little-endian
// Real files have some dozens of keys and a few hundred tensors; the limits bound what an
// enormous file of empty entries can make this process allocate.
constexpr std::uint64_t kMaxEntries = 1 << 16;
constexpr std::uint64_t kMaxKeyLength = 65535;  // the format's own limit
constexpr std::uint64_t kMaxNameLength = 256;   // the format says 64; some builds allow more
constexpr std::int64_t kMaxAlignment = 1 << 20;
constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::int64_t kMinKeyBytes = 8 + 4 + 1;        // length, type, the shortest value
constexpr std::int64_t kMinInfoBytes = 8 + 4 + 8 + 12;  // length, n_dims, one dim, type, offset

constexpr std::array<const char*, 13> kTypeNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
constexpr std::array<std::int64_t, 13> kTypeBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  std::int64_t position() const { return position_; }
  std::int64_t left() const { return static_cast<std::int64_t>(bytes_.size()) - position_; }
  const std::string& where() const { return where_; }

  std::span<const std::byte> take(std::int64_t count, const std::string& what) {
    if (count < 0 || count > left()) {
      fail(what + " takes " + std::to_string(count) + " bytes, but " + std::to_string(left()) +
           " are left; is the file cut off?");
    }
    const auto part =
        bytes_.subspan(static_cast<std::size_t>(position_), static_cast<std::size_t>(count));
    position_ += count;
    return part;
  }
  template <class T>
  T number(const std::string& what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  std::string_view string(std::uint64_t limit, const std::string& what) {
    const auto length = number<std::uint64_t>("the length of " + what);
    if (length > limit) {
      fail(what + " has length " + std::to_string(length) + ", the limit is " +
           std::to_string(limit));
    }
    const auto part = take(checked_size(length, where_ + ": the length of " + what), what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  // A number of entries, each of at least `min_bytes`.
  std::int64_t entries(const std::string& what, std::int64_t min_bytes) {
    const auto count = number<std::uint64_t>("the number of " + what);
    if (count > kMaxEntries || static_cast<std::int64_t>(count) > left() / min_bytes) {
      fail(std::to_string(count) + " " + what + " do not fit in the " + std::to_string(left()) +
           " bytes that are left, or are more than " + std::to_string(kMaxEntries));
    }
    return static_cast<std::int64_t>(count);
  }
  [[noreturn]] void fail(const std::string& text) const {
    throw InputError(where_ + ": at offset " + std::to_string(position_) + ": " + text);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::int64_t position_ = 0;
};

GgufValueType read_type(Cursor& cursor, const std::string& what) {
  const auto type = cursor.number<std::uint32_t>("the type of " + what);
  if (type >= kTypeNames.size()) cursor.fail(what + " has unknown type " + std::to_string(type));
  return static_cast<GgufValueType>(type);
}

void skip_elements(Cursor& cursor, GgufValueType type, std::int64_t count,
                   const std::string& what) {
  if (type == GgufValueType::kString) {
    if (count > cursor.left() / 8) {
      cursor.fail(what + " has " + std::to_string(count) + " strings, but " +
                  std::to_string(cursor.left()) + " bytes are left");
    }
    for (std::int64_t i = 0; i < count; ++i) cursor.string(UINT64_MAX, what);
    return;
  }
  const std::int64_t size = kTypeBytes[static_cast<std::size_t>(type)];
  const auto part = cursor.take(checked_mul(count, size, cursor.where() + ": " + what), what);
  if (type != GgufValueType::kBool) return;
  for (const std::byte value : part) {
    if (std::to_integer<int>(value) > 1) cursor.fail(what + " is a bool other than 0 and 1");
  }
}

GgufValue read_value(Cursor& cursor, std::span<const std::byte> bytes, const std::string& what) {
  GgufValue value;
  value.type = value.element = read_type(cursor, what);
  if (value.type == GgufValueType::kArray) {
    value.element = read_type(cursor, "the elements of " + what);
    if (value.element == GgufValueType::kArray) cursor.fail(what + " is an array of arrays");
    value.count = checked_size(cursor.number<std::uint64_t>("the length of " + what),
                               cursor.where() + ": the length of " + what);
  }
  const std::int64_t begin = cursor.position();
  skip_elements(cursor, value.element, value.count, what);
  value.bytes = bytes.subspan(static_cast<std::size_t>(begin),
                              static_cast<std::size_t>(cursor.position() - begin));
  return value;
}

std::uint32_t read_version(Cursor& cursor) {
  if (cursor.left() < 4 || cursor.number<std::uint32_t>("the magic") != kMagic) {
    throw InputError(cursor.where() + ": does not begin with \"GGUF\"; it is no GGUF file");
  }
  const auto version = cursor.number<std::uint32_t>("the version");
  if (version == 2 || version == 3) return version;
  if ((version & 0xffff) == 0 && version != 0) {
    cursor.fail("version " + std::to_string(version) + ": the file is big-endian");
  }
  cursor.fail("version " + std::to_string(version) + " is not supported; supported: 2, 3");
}

std::int64_t alignment_of(const GgufContents& contents, const std::string& where) {
  const auto found = contents.values.find("general.alignment");
  if (found == contents.values.end()) return kDefaultAlignment;
  const GgufValue& value = found->second;
  if (value.type != GgufValueType::kU32) {
    throw InputError(where + ": key \"general.alignment\" is " + name_of(value.type) +
                     ", expected u32");
  }
  std::uint32_t alignment = 0;
  std::memcpy(&alignment, value.bytes.data(), sizeof alignment);
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment) {
    throw InputError(where + ": general.alignment is " + std::to_string(alignment) +
                     ", expected a power of two up to " + std::to_string(kMaxAlignment));
  }
  return alignment;
}

// A tensor info; `offset` is still from the start of the data.
struct Info {
  GgufTensor tensor;
  std::int64_t bytes = 0;
};

Info read_info(Cursor& cursor) {
  Info info;
  GgufTensor& tensor = info.tensor;
  tensor.name = cursor.string(kMaxNameLength, "a tensor's name");
  if (tensor.name.empty()) cursor.fail("a tensor's name is empty");
  const std::string what = "tensor " + in_quotes(tensor.name);
  const std::string where = cursor.where() + ": " + what;
  const auto n_dims = cursor.number<std::uint32_t>(what);
  if (n_dims == 0 || n_dims > kMaxDims) {
    cursor.fail(what + " has " + std::to_string(n_dims) + " dimensions, expected 1 to 4");
  }
  std::int64_t count = 1;
  for (std::uint32_t d = 0; d < n_dims; ++d) {
    const auto dim = cursor.number<std::int64_t>(what);
    if (dim <= 0) cursor.fail(what + ": dimension " + std::to_string(dim));
    tensor.dims.push_back(dim);
    count = checked_mul(count, dim, where);
  }
  tensor.type = cursor.number<std::uint32_t>(what);
  const GgufType* type = find_gguf_type(tensor.type);
  if (type == nullptr) {
    cursor.fail(what + " has type " + std::to_string(tensor.type) + ", which is not known");
  }
  tensor.type_name = type->name;
  if (tensor.dims[0] % type->block_elements != 0) {
    cursor.fail(what + ": rows of " + std::to_string(tensor.dims[0]) +
                " elements are no multiple of the " + std::to_string(type->block_elements) +
                " of a " + type->name + " block");
  }
  info.bytes = checked_mul(count / type->block_elements, type->block_bytes, where);
  tensor.offset = checked_size(cursor.number<std::uint64_t>(what), where + ": offset");
  return info;
}

void read_metadata(Cursor& cursor, std::span<const std::byte> bytes, std::int64_t keys,
                   GgufContents& contents) {
  for (std::int64_t i = 0; i < keys; ++i) {
    const std::string key(cursor.string(kMaxKeyLength, "a key"));
    if (key.empty()) cursor.fail("a key is empty");
    const GgufValue value = read_value(cursor, bytes, "key " + in_quotes(key));
    if (!contents.values.emplace(key, value).second) {
      cursor.fail("key " + in_quotes(key) + " occurs twice");
    }
  }
}

// Gives every tensor its bytes, which must be aligned, inside the file and its own.
void place(std::vector<Info>& infos, std::span<const std::byte> data, std::int64_t alignment,
           const std::string& where) {
  const auto size = static_cast<std::int64_t>(data.size());
  std::vector<Info*> sorted;
  for (Info& info : infos) sorted.push_back(&info);
  std::sort(sorted.begin(), sorted.end(),
            [](const Info* a, const Info* b) { return a->tensor.offset < b->tensor.offset; });
  std::int64_t end = 0;
  for (Info* info : sorted) {
    GgufTensor& tensor = info->tensor;
    const std::string place = where + ": tensor " + in_quotes(tensor.name) + " at offset " +
                              std::to_string(tensor.offset) + " of the data";
    if (tensor.offset % alignment != 0) {
      throw InputError(place + " is not aligned to " + std::to_string(alignment));
    }
    if (tensor.offset > size || info->bytes > size - tensor.offset) {
      throw InputError(place + " has " + std::to_string(info->bytes) + " bytes, but the data has " +
                       std::to_string(size) + "; is the file cut off?");
    }
    if (tensor.offset < end) throw InputError(place + " overlaps the one before");
    end = tensor.offset + info->bytes;
    tensor.data = data.subspan(static_cast<std::size_t>(tensor.offset),
                               static_cast<std::size_t>(info->bytes));
  }
}

}  // namespace

const char* name_of(GgufValueType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& where) {
  Cursor cursor(bytes, where);
  GgufContents contents;
  contents.version = read_version(cursor);
  const std::int64_t tensors = cursor.entries("tensors", kMinInfoBytes);
  const std::int64_t keys = cursor.entries("keys", kMinKeyBytes);
  read_metadata(cursor, bytes, keys, contents);
  const std::int64_t alignment = alignment_of(contents, where);
  std::vector<Info> infos;
  for (std::int64_t i = 0; i < tensors; ++i) {
    infos.push_back(read_info(cursor));
    const std::string& name = infos.back().tensor.name;
    if (!contents.by_name.emplace(name, infos.size() - 1).second) {
      cursor.fail("tensor " + in_quotes(name) + " occurs twice");
    }
  }
  if (infos.empty()) return contents;
  const std::int64_t begin = checked_align(cursor.position(), alignment, where);
  if (begin > static_cast<std::int64_t>(bytes.size())) {
    cursor.fail("the file ends before the data of its tensors");
  }
  place(infos, bytes.subspan(static_cast<std::size_t>(begin)), alignment, where);
  for (Info& info : infos) {
    info.tensor.offset += begin;
    contents.tensors.push_back(std::move(info.tensor));
  }
  return contents;
}

}  // namespace reprise
