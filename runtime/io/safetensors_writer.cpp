#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "reprise/kernels/error.h"
#include "reprise/runtime/durable_file.h"
#include "reprise/runtime/quoted.h"
#include "reprise/runtime/safetensors.h"
#include "runtime/io/checked.h"
#include "runtime/io/safetensors_format.h"
#include "runtime/io/strict_json.h"

namespace reprise {
namespace {

using nlohmann::ordered_json;

std::string dump(const ordered_json& header) {
  try {
    return header.dump();
  } catch (const ordered_json::type_error&) {
    throw Error("write_safetensors: a name or a metadata value is not UTF-8");
  }
}

}  // namespace

SafetensorsPlan plan_safetensors(const std::vector<SafetensorsEntry>& entries,
                                 const SafetensorsMetadata& metadata) {
  SafetensorsPlan plan;
  std::set<std::string_view> names;
  for (const SafetensorsEntry& entry : entries) {
    require(entry.name != "__metadata__" && names.insert(entry.name).second,
            "write_safetensors: the name " + in_quotes(entry.name) + " is reserved or used twice");
    plan.sizes.push_back(
        safetensors_bytes(entry.dtype_name, entry.shape, "tensor " + in_quotes(entry.name)));
  }
  plan.order.resize(entries.size());
  std::iota(plan.order.begin(), plan.order.end(), std::size_t{0});
  std::sort(plan.order.begin(), plan.order.end(), [&](std::size_t a, std::size_t b) {
    const auto bits_a = *safetensors_bits(entries[a].dtype_name);
    const auto bits_b = *safetensors_bits(entries[b].dtype_name);
    return bits_a != bits_b ? bits_a > bits_b : entries[a].name < entries[b].name;
  });

  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t position = 0;
  ordered_json::object_t& members = *header.get_ptr<ordered_json::object_t*>();
  for (const std::size_t i : plan.order) {
    const std::int64_t end = checked_add(position, plan.sizes[i], "write_safetensors");
    ordered_json entry = ordered_json::object();
    entry["dtype"] = entries[i].dtype_name;
    entry["shape"] = entries[i].shape;
    entry["data_offsets"] = {position, end};
    // Not by operator[], which compares with every member there is.
    members.emplace_back(entries[i].name, std::move(entry));
    position = end;
  }
  std::string text = dump(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data then begins at a multiple of 8
  const auto length = static_cast<std::int64_t>(text.size());
  if (length > kMaxSafetensorsHeader) {
    throw InputError("write_safetensors: a header of " + std::to_string(length) +
                     " bytes, the limit is " + std::to_string(kMaxSafetensorsHeader));
  }
  plan.head.resize(sizeof length);
  std::memcpy(plan.head.data(), &length, sizeof length);
  plan.head += text;
  plan.total_bytes =
      checked_add(static_cast<std::int64_t>(plan.head.size()), position, "write_safetensors");
  return plan;
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<SafetensorsEntry>& entries,
                       const SafetensorsMetadata& metadata, const TensorSource& source) {
  const SafetensorsPlan plan = plan_safetensors(entries, metadata);
  DurableFile file(path, plan.total_bytes);
  file.append(std::as_bytes(std::span(plan.head)));
  for (const std::size_t i : plan.order) {
    const std::span<const std::byte> data = source(i);
    require(static_cast<std::int64_t>(data.size()) == plan.sizes[i],
            "write_safetensors: tensor " + in_quotes(entries[i].name) + " has " +
                std::to_string(data.size()) + " bytes, expected " + std::to_string(plan.sizes[i]));
    file.append(data);
  }
  file.publish();
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<SafetensorsEntry>& entries,
                       const SafetensorsMetadata& metadata) {
  write_safetensors(path, entries, metadata,
                    [&entries](std::size_t index) { return entries[index].data; });
}

}  // namespace reprise
