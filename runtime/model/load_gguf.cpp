#include "runtime/model/load_gguf.h"

#include <algorithm>
#include <map>
#include <set>

#include "reprise/kernels/error.h"
#include "reprise/runtime/gguf.h"
#include "reprise/runtime/quoted.h"
#include "runtime/io/gguf_types.h"
#include "runtime/model/gguf_config.h"
#include "runtime/model/weight_sink.h"

namespace reprise {
namespace {

const char* gguf_name(Projection projection) {
  switch (projection) {
    case Projection::kQ:
      return "attn_q";
    case Projection::kK:
      return "attn_k";
    case Projection::kV:
      return "attn_v";
    case Projection::kO:
      return "attn_output";
    case Projection::kGate:
      return "ffn_gate";
    case Projection::kUp:
      return "ffn_up";
    default:
      return "ffn_down";
  }
}

std::string text_of(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (const std::int64_t dim : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

// Files of the llama architecture keep the two halves of each head's rows interleaved: row p of
// half j is at 2 p + j. Models here rotate halves, so the rows go back.
std::int64_t stored_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t in_head = row % head_dim, pairs = head_dim / 2;
  return row - in_head + 2 * (in_head % pairs) + in_head / pairs;
}

// Tensors of a GGUF file, each asked for once.
class GgufReader {
 public:
  GgufReader(const GgufFile& file, const ModelConfig& config, const LoadOptions& options)
      : file_(file), config_(config), options_(options) {}

  Tensor vector(const std::string& name, std::int64_t size) {
    const GgufTensor& tensor = find(name, {size});
    Tensor result = dense_tensor(DType::kF32, {size}, where(tensor), values_of(tensor));
    file_.drop(tensor);
    return result;
  }

  // The embedding or the head.
  Tensor table(const std::string& name) {
    const GgufTensor& tensor = find(name, {config_.hidden_size, config_.vocab_size});
    const bool bf16 = tensor.type == kGgufBF16 || options_.compute == ComputeType::kBF16;
    Tensor result =
        dense_tensor(bf16 ? DType::kBF16 : DType::kF32, {config_.vocab_size, config_.hidden_size},
                     where(tensor), values_of(tensor));
    file_.drop(tensor);
    return result;
  }

  Nf4Weight projection(const std::string& name, Projection p) {
    const std::int64_t n = config_.out_features(p), k = config_.in_features(p);
    const GgufTensor& tensor = find(name, {k, n});
    ++projection_types_[tensor.type_name];
    const bool rotated = p == Projection::kQ || p == Projection::kK;
    const bool permuted = rotated && config_.architecture == Architecture::kLlama;
    Nf4Weight weight =
        quantize_weight({.name = where(tensor), .n = n, .k = k, .pool = options_.pool},
                        permuted ? rows_of(tensor) : values_of(tensor));
    file_.drop(tensor);
    return weight;
  }

  void refuse_unused() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      throw InputError(in_quotes(file_.path()) + ": unexpected tensor " + in_quotes(tensor.name));
    }
  }

  void describe(std::vector<std::string>& log) const {
    std::string types;
    bool four_bit = false;
    for (const auto& [type, count] : projection_types_) {
      types += (types.empty() ? "" : ", ") + std::to_string(count) + " " + type;
      four_bit = four_bit || type.starts_with("Q4");
    }
    log.push_back("projections of the GGUF file: " + types + "; quantised to NF4");
    if (four_bit) {
      log.push_back("the base was already 4-bit; NF4 adds a second rounding to its values");
    }
  }

 private:
  std::string where(const GgufTensor& tensor) const {
    return in_quotes(file_.path()) + ": tensor " + in_quotes(tensor.name);
  }

  const GgufTensor& find(const std::string& name, const std::vector<std::int64_t>& dims) {
    const GgufTensor& tensor = file_.at(name);
    used_.insert(name);
    if (tensor.dims != dims) {
      throw InputError(where(tensor) + " has dimensions " + text_of(tensor.dims) +
                       ", the metadata says " + text_of(dims));
    }
    require_readable(file_, tensor);
    return tensor;
  }

  static FillRange values_of(const GgufTensor& tensor) {
    return [&tensor](std::int64_t begin, std::int64_t count, float* out) {
      dequantize_gguf(tensor, begin, count, out);
    };
  }

  // Ranges may begin inside a row, but always at a multiple of a block.
  FillRange rows_of(const GgufTensor& tensor) const {
    return
        [&tensor, head_dim = config_.head_dim](std::int64_t begin, std::int64_t count, float* out) {
          const std::int64_t columns = tensor.dims[0];
          for (std::int64_t done = 0; done < count;) {
            const std::int64_t row = (begin + done) / columns, column = (begin + done) % columns;
            const std::int64_t size = std::min(columns - column, count - done);
            dequantize_gguf(tensor, stored_row(row, head_dim) * columns + column, size, out + done);
            done += size;
          }
        };
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  LoadOptions options_;
  std::set<std::string, std::less<>> used_;
  std::map<std::string, int> projection_types_;
};

}  // namespace

ModelConfig load_gguf_config(const std::filesystem::path& path) {
  return read_gguf_config(GgufFile(path));
}

Model load_gguf_model(const std::filesystem::path& path, const LoadOptions& options) {
  const GgufFile file(path);
  Model model;
  model.config = read_gguf_config(file);
  model.source = path.string();
  const ModelConfig& config = model.config;
  GgufReader reader(file, config, options);
  model.embedding = reader.table("token_embd.weight");
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    const std::string prefix = "blk." + std::to_string(l) + ".";
    LayerWeights& layer = model.layers.emplace_back();
    layer.input_norm = reader.vector(prefix + "attn_norm.weight", config.hidden_size);
    layer.post_attention_norm = reader.vector(prefix + "ffn_norm.weight", config.hidden_size);
    for (const Projection p : kAllProjections) {
      const auto i = static_cast<std::size_t>(p);
      const std::string name = prefix + gguf_name(p);
      layer.projections[i] = reader.projection(name + ".weight", p);
      if (config.has_bias(p)) {
        layer.biases[i] = reader.vector(name + ".bias", config.out_features(p));
      }
    }
  }
  model.final_norm = reader.vector("output_norm.weight", config.hidden_size);
  if (!config.tie_word_embeddings) model.lm_head = reader.table("output.weight");
  reader.refuse_unused();
  reader.describe(model.log);
  return model;
}

}  // namespace reprise
