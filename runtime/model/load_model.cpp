// Loading frozen weights: safetensors here, GGUF in load_gguf.cpp.
#include <algorithm>
#include <cstring>
#include <set>

#include "reprise/kernels/error.h"
#include "reprise/runtime/bnb_weight.h"
#include "reprise/runtime/quoted.h"
#include "reprise/runtime/safetensors.h"
#include "runtime/model/hf_config.h"
#include "runtime/model/load_gguf.h"
#include "runtime/model/weight_sink.h"

namespace reprise {
namespace {

bool is_gguf(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

// Tensors of a Hugging Face checkpoint, each asked for once.
class CheckpointReader {
 public:
  CheckpointReader(const std::filesystem::path& path, const LoadOptions& options)
      : tensors_(path), options_(options) {}

  // A 16- or 32-bit tensor with exactly this shape.
  const SafetensorsTensor& find(const std::string& name, const std::vector<std::int64_t>& shape) {
    const SafetensorsTensor& tensor = tensors_.at(name);
    used_.insert(name);
    if (tensor.shape != shape) {
      throw InputError(where(tensor) + " has shape " + to_string(tensor.shape) +
                       ", config.json says " + to_string(shape));
    }
    return tensor;
  }

  FillRange values_of(const SafetensorsTensor& tensor) {
    return [this, &tensor](std::int64_t begin, std::int64_t count, float* out) {
      // A range of the tensor is a tensor of its own.
      SafetensorsTensor range = tensor;
      const std::int64_t element = element_bytes(tensor);
      range.shape = {count};
      range.offset = tensor.offset + begin * element;
      range.data = tensor.data.subspan(static_cast<std::size_t>(begin * element),
                                       static_cast<std::size_t>(count * element));
      read_floats(range, tensors_.file_of(tensor).path(), out);
    };
  }

  Tensor vector(const std::string& name, std::int64_t size) {
    const SafetensorsTensor& tensor = find(name, {size});
    Tensor values = dense_tensor(DType::kF32, {size}, where(tensor), values_of(tensor));
    tensors_.drop(tensor);
    return values;
  }

  // The embedding or the head.
  Tensor table(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const SafetensorsTensor& tensor = find(name, {rows, columns});
    const bool bf16 = tensor.dtype == DType::kBF16 || options_.compute == ComputeType::kBF16;
    Tensor table = dense_tensor(bf16 ? DType::kBF16 : DType::kF32, {rows, columns}, where(tensor),
                                values_of(tensor));
    tensors_.drop(tensor);
    return table;
  }

  Nf4Weight projection(const std::string& module, std::int64_t n, std::int64_t k) {
    const std::string name = module + ".weight";
    if (is_bnb_weight(tensors_, name)) {
      Nf4Weight weight = read_bnb_weight(tensors_, name, n, k);
      const std::string prefix = name + ".";
      for (const auto& file : tensors_.files()) {
        for (const SafetensorsTensor& part : file->tensors()) {
          if (part.name != name && !part.name.starts_with(prefix)) continue;
          used_.insert(part.name);
          tensors_.drop(part);
        }
      }
      ++prequantised_;
      return weight;
    }
    const SafetensorsTensor& tensor = find(name, {n, k});
    if (!tensor.dtype || (*tensor.dtype != DType::kF32 && *tensor.dtype != DType::kBF16 &&
                          *tensor.dtype != DType::kF16)) {
      throw InputError(where(tensor) + " is " + tensor.dtype_name +
                       ", expected F32, F16, BF16 or bitsandbytes NF4");
    }
    Nf4Weight weight = quantize_weight(
        {.name = where(tensor), .n = n, .k = k, .pool = options_.pool}, values_of(tensor));
    tensors_.drop(tensor);
    return weight;
  }

  bool contains(const std::string& name) const { return tensors_.find(name) != nullptr; }

  // A tied checkpoint may carry the head again; then it must be the embedding.
  void accept_tied_head(std::vector<std::string>& log) {
    const SafetensorsTensor* head = tensors_.find("lm_head.weight");
    if (head == nullptr) return;
    used_.insert(head->name);
    const SafetensorsTensor& embedding = tensors_.at("model.embed_tokens.weight");
    if (head->dtype_name != embedding.dtype_name || head->data.size() != embedding.data.size() ||
        std::memcmp(head->data.data(), embedding.data.data(), head->data.size()) != 0) {
      throw InputError(in_quotes(tensors_.file_of(*head).path()) +
                       ": lm_head.weight differs from the embedding although config.json says "
                       "tie_word_embeddings true");
    }
    tensors_.drop(*head);
    tensors_.drop(embedding);
    log.push_back("lm_head.weight is stored although the embeddings are tied; it is equal");
  }

  void refuse_unused() const {
    for (const auto& file : tensors_.files()) {
      for (const SafetensorsTensor& tensor : file->tensors()) {
        if (used_.contains(tensor.name) || tensor.name.ends_with("rotary_emb.inv_freq")) continue;
        throw InputError(in_quotes(file->path()) + ": unexpected tensor " + in_quotes(tensor.name));
      }
    }
  }

  int prequantised() const { return prequantised_; }

 private:
  std::string where(const SafetensorsTensor& tensor) const {
    return in_quotes(tensors_.file_of(tensor).path()) + ": tensor " + in_quotes(tensor.name);
  }

  static std::int64_t element_bytes(const SafetensorsTensor& tensor) {
    return tensor.count() == 0 ? 0 : static_cast<std::int64_t>(tensor.data.size()) / tensor.count();
  }

  SafetensorsModel tensors_;
  LoadOptions options_;
  std::set<std::string> used_;
  int prequantised_ = 0;
};

Model load_checkpoint(const std::filesystem::path& folder, const LoadOptions& options) {
  Model model;
  model.config = read_hf_config(folder / "config.json");
  model.source = folder.string();
  const ModelConfig& config = model.config;
  CheckpointReader reader(folder, options);
  model.embedding =
      reader.table("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    const std::string prefix = "model.layers." + std::to_string(l) + ".";
    LayerWeights& layer = model.layers.emplace_back();
    layer.input_norm = reader.vector(prefix + "input_layernorm.weight", config.hidden_size);
    layer.post_attention_norm =
        reader.vector(prefix + "post_attention_layernorm.weight", config.hidden_size);
    for (const Projection p : kAllProjections) {
      const auto i = static_cast<std::size_t>(p);
      const std::string module = module_name(l, p);
      layer.projections[i] =
          reader.projection(module, config.out_features(p), config.in_features(p));
      if (config.has_bias(p)) {
        layer.biases[i] = reader.vector(module + ".bias", config.out_features(p));
      }
    }
  }
  model.final_norm = reader.vector("model.norm.weight", config.hidden_size);
  if (config.tie_word_embeddings) {
    reader.accept_tied_head(model.log);
  } else {
    model.lm_head = reader.table("lm_head.weight", config.vocab_size, config.hidden_size);
  }
  reader.refuse_unused();
  if (reader.prequantised() > 0) {
    model.log.push_back(std::to_string(reader.prequantised()) +
                        " projections are NF4 of bitsandbytes and used as they are");
  }
  return model;
}

}  // namespace

ModelConfig load_model_config(const std::filesystem::path& path) {
  if (is_gguf(path)) return load_gguf_config(path);
  return read_hf_config(path / "config.json");
}

Model load_model(const std::filesystem::path& path, const LoadOptions& options) {
  if (is_gguf(path)) return load_gguf_model(path, options);
  if (!std::filesystem::exists(path)) {
    throw InputError(in_quotes(path) + ": no such file or folder");
  }
  if (!std::filesystem::is_directory(path)) {
    throw InputError(in_quotes(path) +
                     ": expected a folder with config.json and safetensors, or a .gguf file");
  }
  return load_checkpoint(path, options);
}

}  // namespace reprise
