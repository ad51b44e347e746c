#include <algorithm>
#include <memory>
#include <ostream>
#include <span>

#include "apps/nf4_tool/commands.h"
#include "reprise/kernels/error.h"
#include "reprise/kernels/nf4.h"
#include "reprise/runtime/durable_file.h"
#include "reprise/runtime/quoted.h"

namespace reprise::nf4_tool {
namespace {

// One tensor of the output: a copy, or a part of the weight `weight`.
struct Part {
  const SafetensorsTensor* tensor = nullptr;
  bool packed = false;  // the codes, which are computed again when they are written
};

class Quantizer {
 public:
  explicit Quantizer(const QuantizeOptions& options) : options_(options), model_(options.input) {}

  void run(std::ostream& log) {
    for (const auto& file : model_.files()) {
      for (const SafetensorsTensor& tensor : file->tensors()) add(*file, tensor);
    }
    if (weights_.empty()) {
      throw InputError(in_quotes(options_.input) +
                       ": no tensor of two dimensions has one of the names to quantise, such as " +
                       in_quotes("..." + options_.suffixes.front()));
    }
    write_safetensors(options_.output, entries_, {{"format", "pt"}},
                      [this](std::size_t index) { return data(index); });
    log << "quantised " << weights_.size() << " weights with " << elements_
        << " elements in blocks of " << options_.storage.block_size << ", copied "
        << tensors_copied_ << " tensors: " << options_.output.native() << "\n";
  }

 private:
  bool chosen(const SafetensorsTensor& tensor) const {
    return tensor.shape.size() == 2 && tensor.count() > 0 &&
           std::any_of(options_.suffixes.begin(), options_.suffixes.end(),
                       [&](const std::string& suffix) { return tensor.name.ends_with(suffix); });
  }

  void add(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
    if (!chosen(tensor)) {
      entries_.push_back({tensor.name, tensor.dtype_name, tensor.shape, tensor.data});
      parts_.push_back({&tensor, false});
      ++tensors_copied_;
      return;
    }
    if (is_bnb_weight(model_, tensor.name)) {
      throw InputError(in_quotes(file.path()) + ": tensor " + in_quotes(tensor.name) +
                       " is quantised already");
    }
    BnbTensors quantised = quantised_weight(file, tensor);
    quantised.packed = {};
    weights_.push_back(std::make_unique<BnbTensors>(std::move(quantised)));
    const auto entries =
        bnb_entries(tensor.name, tensor.shape[0], tensor.shape[1], *weights_.back());
    for (const SafetensorsEntry& entry : entries) {
      entries_.push_back(entry);
      parts_.push_back({&tensor, entry.name == tensor.name});
    }
    elements_ += tensor.count();
  }

  BnbTensors quantised_weight(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
    values_.resize(static_cast<std::size_t>(tensor.count()));
    read_floats(tensor, file.path(), values_.data());
    file.drop(tensor);
    if (const std::int64_t bad = first_not_finite(values_.data(), tensor.count()); bad >= 0) {
      const std::int64_t columns = tensor.shape[1];
      throw InputError(in_quotes(file.path()) + ": tensor " + in_quotes(tensor.name) +
                       ": element [" + std::to_string(bad / columns) + ", " +
                       std::to_string(bad % columns) + "] is " +
                       std::to_string(values_[static_cast<std::size_t>(bad)]) +
                       ", a block with it has no scale");
    }
    const char* dtype_name = tensor.dtype == DType::kF32   ? "float32"
                             : tensor.dtype == DType::kF16 ? "float16"
                                                           : "bfloat16";
    return quantize_bnb(values_.data(), tensor.shape[0], tensor.shape[1], dtype_name,
                        options_.storage);
  }

  std::span<const std::byte> data(std::size_t index) {
    const Part& part = parts_[index];
    if (!part.packed) return entries_[index].data;
    packed_ = quantised_weight(model_.file_of(*part.tensor), *part.tensor).packed;
    return std::as_bytes(std::span(packed_));
  }

  const QuantizeOptions& options_;
  SafetensorsModel model_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<Part> parts_;                           // by entry
  std::vector<std::unique_ptr<BnbTensors>> weights_;  // what the entries refer to, without codes
  std::vector<float> values_;
  std::vector<std::uint8_t> packed_;
  std::int64_t elements_ = 0;
  std::int64_t tensors_copied_ = 0;
};

}  // namespace

void quantize(const QuantizeOptions& options, std::ostream& log) {
  require_writable_file(options.output);
  Quantizer(options).run(log);
}

}  // namespace reprise::nf4_tool
