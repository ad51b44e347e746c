#include <algorithm>
#include <set>

#include "reprise/kernels/error.h"
#include "reprise/runtime/quoted.h"
#include "reprise/runtime/safetensors.h"
#include "runtime/io/strict_json.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

bool is_there(const fs::path& path) {
  std::error_code ignored;  // a path that cannot be looked at is reported when it is opened
  return fs::exists(path, ignored);
}

// Pickled checkpoints run code when they are read, so they are refused, with a way out.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::error_code ignored;
  std::vector<std::string> pickles;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt") {
      pickles.push_back(entry.path().filename().native());
    }
  }
  const std::string missing =
      in_quotes(folder) + ": has neither " + kSingleName + " nor " + kIndexName;
  if (pickles.empty()) throw InputError(missing);
  std::sort(pickles.begin(), pickles.end());
  throw InputError(missing + "; " + in_quotes(pickles.front()) +
                   " is a pickle, which can run code when it is read. Convert it once: "
                   "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT) of "
                   "transformers writes safetensors");
}

// A shard is a file right in the folder: a value such as "../x" or "/etc/x" must not leave it.
void require_plain_name(const std::string& name, const std::string& where) {
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain) throw InputError(where + ": " + in_quotes(name) + " is not a plain file name");
}

std::map<std::string, std::string> read_index(const fs::path& path) {
  // The largest published models have about 100,000 tensors, 10 MB of index.
  const nlohmann::json index = read_strict_json(path, {100'000'000, 8, 4 << 20});
  const std::string where = in_quotes(path);
  const nlohmann::json& weight_map = json_member(index, "weight_map", where);
  if (!weight_map.is_object()) throw InputError(where + ": \"weight_map\" must be a JSON object");
  std::map<std::string, std::string> result;
  for (const auto& [tensor, file] : weight_map.items()) {
    if (!file.is_string()) {
      throw InputError(where + ": weight_map of " + in_quotes(tensor) + " must be a file name");
    }
    require_plain_name(file.get_ref<const std::string&>(),
                       where + ": weight_map of " + in_quotes(tensor));
    result[tensor] = file.get<std::string>();
  }
  if (result.empty()) throw InputError(where + ": \"weight_map\" is empty");
  return result;
}

// Both ways: what the index promises is in that shard, and a shard has nothing that the index does
// not give to it.
void require_agreement(const std::map<std::string, std::string>& weight_map,
                       const SafetensorsFile& shard, const fs::path& index) {
  const std::string shard_name = shard.path().filename().native();
  for (const auto& [tensor, file] : weight_map) {
    if (file == shard_name && shard.find(tensor) == nullptr) {
      throw InputError(in_quotes(index) + ": tensor " + in_quotes(tensor) + " should be in " +
                       in_quotes(shard_name) + ", but is not there");
    }
  }
  for (const SafetensorsTensor& tensor : shard.tensors()) {
    const auto found = weight_map.find(tensor.name);
    if (found == weight_map.end()) {
      throw InputError(in_quotes(shard.path()) + ": tensor " + in_quotes(tensor.name) +
                       " is not in " + in_quotes(index));
    }
    if (found->second != shard_name) {
      throw InputError(in_quotes(shard.path()) + ": tensor " + in_quotes(tensor.name) +
                       " is here, but " + in_quotes(index) + " says it is in " +
                       in_quotes(found->second));
    }
  }
}

}  // namespace

SafetensorsModel::SafetensorsModel(const fs::path& path) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    return;
  }
  const bool single = is_there(path / kSingleName);
  const fs::path index = path / kIndexName;
  if (single && is_there(index)) {
    throw InputError(in_quotes(path) + ": has both " + kSingleName + " and " + kIndexName +
                     "; remove the one that is out of date");
  }
  if (single) {
    files_.push_back(std::make_unique<SafetensorsFile>(path / kSingleName));
    return;
  }
  if (!is_there(index)) refuse_folder(path);
  const std::map<std::string, std::string> weight_map = read_index(index);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : weight_map) shards.insert(file);
  for (const std::string& shard : shards) {
    if (!is_there(path / shard)) {
      throw InputError(in_quotes(index) + ": shard " + in_quotes(shard) + " is missing from " +
                       in_quotes(path));
    }
    files_.push_back(std::make_unique<SafetensorsFile>(path / shard));
    require_agreement(weight_map, *files_.back(), index);
  }
}

const SafetensorsTensor* SafetensorsModel::find(std::string_view name) const {
  for (const auto& file : files_) {
    if (const SafetensorsTensor* tensor = file->find(name)) return tensor;
  }
  return nullptr;
}

const SafetensorsTensor& SafetensorsModel::at(std::string_view name) const {
  if (const SafetensorsTensor* tensor = find(name)) return *tensor;
  throw InputError(in_quotes(path_) + ": tensor " + in_quotes(name) + " is missing");
}

const SafetensorsFile& SafetensorsModel::file_of(const SafetensorsTensor& tensor) const {
  for (const auto& file : files_) {
    if (file->find(tensor.name) == &tensor) return *file;
  }
  throw Error("the tensor " + in_quotes(tensor.name) + " is not of this model");
}

}  // namespace reprise
