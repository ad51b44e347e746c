#include "kernels/ops/contract.h"

#include <cstdint>
#include <utility>

namespace reprise {
namespace {

bool overlap(const ConstView& a, const ConstView& b) {
  if (a.data == nullptr || b.data == nullptr) return false;
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  return begin_a < begin_b + static_cast<std::uintptr_t>(b.bytes()) &&
         begin_b < begin_a + static_cast<std::uintptr_t>(a.bytes());
}

std::string described(const ConstView& view) { return name_of(view.dtype) + to_string(view.dims); }

}  // namespace

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

NamedView packed_of(const Nf4View& weight) {
  return {"weight.packed", {weight.packed, DType::kU8, {nf4_packed_bytes(weight.count())}}};
}

NamedView absmax_of(const Nf4View& weight) {
  return {"weight.absmax",
          {weight.absmax, DType::kF32, {nf4_blocks(weight.count(), weight.block_size)}}};
}

NamedView bytes_of(const Scratch& scratch) {
  return {"scratch", {scratch.data, DType::kU8, {scratch.bytes}}};
}

NamedView bytes_of(const char* name, const StepParams* params) {
  return {name, {params, DType::kU8, {static_cast<std::int64_t>(sizeof(StepParams))}}};
}

void Contract::fail(std::string reason) {
  if (reason_.empty()) reason_ = std::move(reason);
}

Contract& Contract::is(const char* name, const ConstView& view, DType dtype, const Dims& dims) {
  if (view.dtype != dtype || view.dims != dims) {
    fail(std::string(name) + " must be " + name_of(dtype) + to_string(dims) + ", is " +
         described(view));
  }
  return *this;
}

Contract& Contract::is_float(const char* name, const ConstView& view, const Dims& dims) {
  const bool is_float = view.dtype == DType::kF32 || view.dtype == DType::kBF16;
  if (!is_float || view.dims != dims) {
    fail(std::string(name) + " must be F32 or BF16" + to_string(dims) + ", is " + described(view));
  }
  return *this;
}

Contract& Contract::holds(bool condition, const char* reason) {
  if (!condition) fail(reason);
  return *this;
}

Contract& Contract::separate(std::initializer_list<NamedView> written,
                             std::initializer_list<NamedView> read) {
  for (const NamedView* output = written.begin(); output != written.end(); ++output) {
    for (const NamedView& input : read) apart(input.name, input.view, output->name, output->view);
    for (const NamedView* other = written.begin(); other != output; ++other) {
      apart(other->name, other->view, output->name, output->view);
    }
  }
  return *this;
}

Contract& Contract::apart(const char* name_a, const ConstView& a, const char* name_b,
                          const ConstView& b) {
  if (overlap(a, b)) fail(std::string(name_a) + " and " + name_b + " overlap");
  return *this;
}

Contract& Contract::apart_or_same(const char* name_a, const ConstView& a, const char* name_b,
                                  const ConstView& b) {
  const bool same = a.data == b.data && size_of(a.dtype) == size_of(b.dtype);
  return same ? *this : apart(name_a, a, name_b, b);
}

}  // namespace reprise
