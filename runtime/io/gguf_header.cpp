#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "runtime/io/checked.h"
#include "runtime/io/gguf_format.h"
#include "runtime/io/quoted.h"

namespace reprise {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kLfsPointer = "version https://git-lfs";
constexpr std::int64_t kMaxKeyBytes = 65535;      // the specification's limit
constexpr std::int64_t kMaxTensorNameBytes = 64;  // likewise
constexpr std::int64_t kMaxDims = 4;              // likewise
constexpr std::int64_t kDefaultAlignment = 32;    // likewise
// The smallest is the specification's. Files use 32; the largest leaves room for huge pages.
constexpr std::int64_t kMinAlignment = 8, kMaxAlignment = 2 << 20;
// A key of one byte with a value of one byte; a tensor of no dimensions with a name of one byte.
// They bound how many of each can follow in the bytes that are left.
constexpr std::int64_t kSmallestEntry = 8 + 1 + 4 + 1, kSmallestTensor = 8 + 1 + 4 + 4 + 8;

// Reads the file from front to back and never past its end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  std::int64_t position() const { return position_; }
  std::int64_t left() const { return static_cast<std::int64_t>(file_.size()) - position_; }

  std::span<const std::byte> take(std::int64_t bytes, const std::string& what) {
    if (bytes > left()) {
      refuse(what + " needs " + std::to_string(bytes) + " bytes, " + std::to_string(left()) +
             " are left");
    }
    const auto part =
        file_.subspan(static_cast<std::size_t>(position_), static_cast<std::size_t>(bytes));
    position_ += bytes;
    return part;
  }
  template <class T>
  T number(const std::string& what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  std::int64_t size(const std::string& what) {
    return checked_size(number<std::uint64_t>(what), where_ + ": " + what);
  }
  std::string text(std::int64_t longest, const std::string& what) {
    const std::int64_t length = size("length of " + what);
    if (length < 1 || length > longest) {
      refuse(what + " has " + std::to_string(length) + " bytes, expected 1 to " +
             std::to_string(longest));
    }
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  [[noreturn]] void refuse(const std::string& message) const {
    throw InputError(where_ + ": at offset " + std::to_string(position_) + ": " + message);
  }

 private:
  std::span<const std::byte> file_;
  const std::string& where_;
  std::int64_t position_ = 0;
};

void check_version(Cursor& cursor) {
  const auto version = cursor.number<std::uint32_t>("version");
  if (version == 2 || version == 3) return;
  if (version == 1) {
    cursor.refuse("GGUF version 1 is not supported, expected 2 or 3; convert the model again");
  }
  if (version != 0 && (version & 0xffff) == 0) {
    cursor.refuse("the file is big-endian, which is not supported");
  }
  cursor.refuse("GGUF version " + std::to_string(version) + " is not known, expected 2 or 3");
}

// A count of things that need at least `smallest` bytes each.
std::int64_t bounded_count(Cursor& cursor, std::int64_t smallest, const std::string& what) {
  const std::int64_t count = cursor.size(what);
  if (count > cursor.left() / smallest) {
    cursor.refuse(what + " is " + std::to_string(count) + ", but only " +
                  std::to_string(cursor.left()) + " bytes are left");
  }
  return count;
}

// The bytes of `count` values of one type that is no array.
void skip_values(Cursor& cursor, GgufValueType type, std::int64_t count, const std::string& what) {
  if (type != GgufValueType::kString) {
    cursor.take(size_of(type) * count, what);  // count is bounded: no overflow
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    cursor.take(cursor.size("length of a string of " + what), "a string of " + what);
  }
}

GgufValueType read_type(Cursor& cursor, const std::string& what) {
  const auto type = static_cast<GgufValueType>(cursor.number<std::uint32_t>("type of " + what));
  if (type != GgufValueType::kString && type != GgufValueType::kArray && size_of(type) == 0) {
    cursor.refuse("type " + std::to_string(static_cast<std::uint32_t>(type)) + " of " + what +
                  " is not known");
  }
  return type;
}

GgufValue read_value(Cursor& cursor, std::span<const std::byte> file, const std::string& what) {
  GgufValue value;
  value.type = value.element = read_type(cursor, what);
  if (value.type == GgufValueType::kArray) {
    value.element = read_type(cursor, "the elements of " + what);
    if (value.element == GgufValueType::kArray) {
      cursor.refuse(what + " is an array of arrays, which is not supported");
    }
    const bool strings = value.element == GgufValueType::kString;
    value.count =
        bounded_count(cursor, strings ? 8 : size_of(value.element), "element count of " + what);
  }
  const std::int64_t begin = cursor.position();
  skip_values(cursor, value.element, value.count, what);
  value.data = file.subspan(static_cast<std::size_t>(begin),
                            static_cast<std::size_t>(cursor.position() - begin));
  return value;
}

std::int64_t read_alignment(const GgufHeader& header, const std::string& where) {
  const auto found = header.metadata.find("general.alignment");
  if (found == header.metadata.end()) return kDefaultAlignment;
  if (found->second.type != GgufValueType::kU32) {
    throw InputError(where + ": general.alignment is " + name_of(found->second.type) +
                     ", expected u32");
  }
  std::uint32_t alignment;
  std::memcpy(&alignment, found->second.data.data(), sizeof alignment);
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
    throw InputError(where + ": general.alignment is " + std::to_string(alignment) +
                     ", expected a power of two from " + std::to_string(kMinAlignment) + " to " +
                     std::to_string(kMaxAlignment));
  }
  return alignment;
}

struct TensorInfo {
  GgufTensor tensor;
  std::int64_t offset = 0;  // from the start of the data
  std::int64_t bytes = 0;
};

TensorInfo read_tensor_info(Cursor& cursor, const std::string& where) {
  TensorInfo info;
  info.tensor.name = cursor.text(kMaxTensorNameBytes, "a tensor's name");
  const std::string what = "tensor " + in_quotes(info.tensor.name);
  const std::string place = where + ": " + what;
  const auto dims = cursor.number<std::uint32_t>("dimension count of " + what);
  if (dims > kMaxDims) {
    cursor.refuse(what + " has " + std::to_string(dims) + " dimensions, at most 4 are possible");
  }
  std::vector<std::int64_t>& shape = info.tensor.shape;
  std::int64_t count = 1;
  bool empty = false;
  for (std::uint32_t d = 0; d < dims; ++d) {
    shape.push_back(cursor.size("a dimension of " + what));
    empty |= shape.back() == 0;
    // Without the zeros, so that no order of multiplying overflows.
    count = checked_mul(count, std::max<std::int64_t>(shape.back(), 1), place);
  }
  const auto id = cursor.number<std::uint32_t>("type of " + what);
  info.tensor.type = find_gguf_type(id);
  if (info.tensor.type == nullptr) {
    cursor.refuse(what + " has type " + std::to_string(id) +
                  ", which is not known; Reprise reads " + readable_gguf_types());
  }
  const GgufBlockType& type = *info.tensor.type;
  const std::int64_t row = shape.empty() ? 1 : shape.front();
  if (row % type.block_size != 0) {
    cursor.refuse(what + " has rows of " + std::to_string(row) + " elements, but " + type.name +
                  " stores " + std::to_string(type.block_size) + " together");
  }
  std::reverse(shape.begin(), shape.end());
  info.bytes = empty ? 0 : checked_mul(count / type.block_size, type.block_bytes, place);
  info.offset = cursor.size("offset of " + what);
  return info;
}

std::vector<TensorInfo> read_tensor_infos(Cursor& cursor, std::int64_t count,
                                          const std::string& where) {
  std::vector<TensorInfo> infos;
  std::set<std::string_view> names;
  infos.reserve(static_cast<std::size_t>(count));  // the names stay where they are
  for (std::int64_t i = 0; i < count; ++i) {
    infos.push_back(read_tensor_info(cursor, where));
    if (!names.insert(infos.back().tensor.name).second) {
      cursor.refuse("tensor " + in_quotes(infos.back().tensor.name) + " is there twice");
    }
  }
  return infos;
}

// Assigns each tensor its bytes after checking that they are aligned, inside the file and its own.
void place_tensors(std::vector<TensorInfo>& infos, std::span<const std::byte> file,
                   std::int64_t data_begin, std::int64_t alignment, const std::string& where) {
  const auto file_bytes = static_cast<std::int64_t>(file.size());
  const auto refuse = [&](const TensorInfo& info, const std::string& message) {
    throw InputError(where + ": tensor " + in_quotes(info.tensor.name) + " of " +
                     std::to_string(info.bytes) + " bytes at offset " +
                     std::to_string(info.offset) + " of the data " + message);
  };
  for (TensorInfo& info : infos) {
    if (info.offset % alignment != 0) {
      refuse(info, "is not aligned to " + std::to_string(alignment));
    }
    const auto begin = try_add(data_begin, info.offset);
    const auto end = begin ? try_add(*begin, info.bytes) : std::nullopt;
    if (!end || *end > file_bytes) {
      refuse(info, "leaves the file, which has " + std::to_string(file_bytes) +
                       " bytes with data from " + std::to_string(data_begin) + "; is it cut off?");
    }
    info.tensor.data =
        file.subspan(static_cast<std::size_t>(*begin), static_cast<std::size_t>(info.bytes));
  }
  std::vector<const TensorInfo*> by_offset;
  for (const TensorInfo& info : infos) {
    if (info.bytes > 0) by_offset.push_back(&info);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const TensorInfo& before = *by_offset[i - 1];
    if (before.offset + before.bytes > by_offset[i]->offset) {
      refuse(*by_offset[i], "overlaps tensor " + in_quotes(before.tensor.name));
    }
  }
}

}  // namespace

GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& where) {
  Cursor cursor(file, where);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with(kLfsPointer)) {
    throw InputError(where + ": is a git-LFS pointer, not the model; run git lfs pull");
  }
  if (!text.starts_with(kMagic)) {
    throw InputError(where + ": is no GGUF file: it begins with " + in_quotes(text.substr(0, 4)) +
                     ", expected \"GGUF\"");
  }
  cursor.take(static_cast<std::int64_t>(kMagic.size()), "the magic number");
  check_version(cursor);
  const std::int64_t tensor_count = bounded_count(cursor, kSmallestTensor, "the tensor count");
  const std::int64_t entry_count = bounded_count(cursor, kSmallestEntry, "the metadata count");
  GgufHeader header;
  for (std::int64_t i = 0; i < entry_count; ++i) {
    const std::string key = cursor.text(kMaxKeyBytes, "a metadata key");
    const GgufValue value = read_value(cursor, file, in_quotes(key));
    if (!header.metadata.emplace(key, value).second) {
      cursor.refuse("metadata key " + in_quotes(key) + " is there twice");
    }
  }
  const std::int64_t alignment = read_alignment(header, where);
  std::vector<TensorInfo> infos = read_tensor_infos(cursor, tensor_count, where);
  place_tensors(infos, file, checked_align(cursor.position(), alignment, where), alignment, where);
  for (TensorInfo& info : infos) header.tensors.push_back(std::move(info.tensor));
  return header;
}

}  // namespace reprise
