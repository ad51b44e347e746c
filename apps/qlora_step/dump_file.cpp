#include "apps/qlora_step/dump_file.h"

#include "reprise/runtime/safetensors.h"

namespace reprise::qlora_step {

void write_dump(const std::filesystem::path& path,
                const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    SafetensorsEntry entry{
        .name = name, .dtype_name = name_of(tensor.dtype), .shape = {}, .data = {}};
    for (int axis = 0; axis < tensor.dims.rank(); ++axis) entry.shape.push_back(tensor.dims[axis]);
    const View view = tensor.view();
    entry.data = {static_cast<const std::byte*>(view.data), static_cast<std::size_t>(view.bytes())};
    entries.push_back(std::move(entry));
  }
  write_safetensors(path, entries);
}

}  // namespace reprise::qlora_step
