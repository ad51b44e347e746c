#include <algorithm>
#include <ostream>

#include "apps/nf4_tool/commands.h"
#include "reprise/runtime/quoted.h"

namespace reprise::nf4_tool {

void inspect(const std::filesystem::path& input, std::ostream& out) {
  const SafetensorsModel model(input);
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  for (const auto& file : model.files()) {
    out << in_quotes(file->path()) << ": " << file->tensors().size() << " tensors, " << file->size()
        << " bytes\n";
    for (const auto& [key, value] : file->metadata()) {
      out << "  metadata " << in_quotes(key) << " = " << in_quotes(value) << "\n";
    }
    for (const SafetensorsTensor& tensor : file->tensors()) {
      out << "  " << tensor.dtype_name << " " << to_string(tensor.shape) << " "
          << tensor.data.size() << " bytes at " << tensor.offset << " " << in_quotes(tensor.name)
          << "\n";
      ++tensors;
      bytes += static_cast<std::int64_t>(tensor.data.size());
    }
  }
  const std::vector<std::string> quantised = quantized_names(model);
  for (const std::string& name : quantised) {
    const BnbState state = read_bnb_state(model, name);
    // Reads it whole, so that what is listed is also sound.
    const Nf4Weight weight = read_bnb_weight(model, name, state.shape.at(0), state.shape.at(1));
    out << "  NF4 " << to_string(state.shape) << " of " << state.dtype_name << ", blocks of "
        << state.block_size;
    if (state.nested) {
      out << ", scales in 8 bits, blocks of " << state.nested_block_size << ", offset "
          << state.nested_offset;
    }
    out << ", " << weight.bytes() << " bytes in memory: " << in_quotes(name) << "\n";
  }
  out << tensors << " tensors with " << bytes << " bytes, " << quantised.size() << " NF4 weights\n";
}

}  // namespace reprise::nf4_tool
