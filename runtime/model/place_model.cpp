#include "reprise/runtime/place_model.h"

#include <utility>

namespace reprise {
namespace {

void place(Buffer& buffer, Backend& backend, const char* what) {
  if (buffer.bytes() == 0) return;
  Buffer placed = backend.allocate(buffer.bytes(), what);
  backend.upload(placed.data(), buffer.data(), buffer.bytes());
  buffer = std::move(placed);
}

}  // namespace

Model place_model(Model model, Backend& backend) {
  if (backend.host_memory()) return model;
  place(model.embedding.buffer, backend, "the embedding");
  place(model.lm_head.buffer, backend, "the vocabulary head");
  place(model.final_norm.buffer, backend, "the final norm");
  for (LayerWeights& layer : model.layers) {
    place(layer.input_norm.buffer, backend, "norms");
    place(layer.post_attention_norm.buffer, backend, "norms");
    for (Nf4Weight& weight : layer.projections) {
      place(weight.packed, backend, "NF4 weights");
      place(weight.absmax, backend, "NF4 scales");
    }
    for (Tensor& bias : layer.biases) place(bias.buffer, backend, "biases");
  }
  model.place = &backend;
  return model;
}

}  // namespace reprise
