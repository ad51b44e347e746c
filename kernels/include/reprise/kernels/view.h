// Views: a pointer, an element type and up to four dimensions over memory that somebody else owns.
// Always dense and row-major; the last dimension is the fastest. A view with a null pointer but
// valid dimensions is legal and describes a value before memory is assigned to it: `supports` and
// `scratch_bytes` of an op look at types and dimensions only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "reprise/kernels/dtype.h"
#include "reprise/kernels/error.h"

namespace reprise {

class Dims {
 public:
  static constexpr int kMaxRank = 4;

  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<std::int64_t> sizes) {
    if (sizes.size() > kMaxRank) throw Error("Dims: at most 4 dimensions");
    for (std::int64_t size : sizes) sizes_[rank_++] = size;
  }

  constexpr int rank() const { return rank_; }
  constexpr std::int64_t operator[](int axis) const { return sizes_[axis]; }
  constexpr std::int64_t last() const { return rank_ == 0 ? 1 : sizes_[rank_ - 1]; }
  // Number of elements; 1 for rank 0.
  constexpr std::int64_t count() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= sizes_[i];
    return n;
  }
  // Product of all but the last dimension: the number of rows.
  constexpr std::int64_t rows() const {
    std::int64_t n = 1;
    for (int i = 0; i + 1 < rank_; ++i) n *= sizes_[i];
    return n;
  }
  constexpr bool operator==(const Dims&) const = default;

 private:
  std::int64_t sizes_[kMaxRank] = {};
  int rank_ = 0;
};

// "[2, 48, 320]"
std::string to_string(const Dims& dims);

struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Dims dims;

  bool present() const { return dims.rank() > 0; }  // an optional operand that is there
  std::int64_t count() const { return dims.count(); }
  std::int64_t bytes() const { return dims.count() * size_of(dtype); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Dims dims;

  constexpr ConstView() = default;
  constexpr ConstView(const void* memory, DType type, Dims dimensions)
      : data(memory), dtype(type), dims(dimensions) {}
  ConstView(const View& view) : data(view.data), dtype(view.dtype), dims(view.dims) {}

  bool present() const { return dims.rank() > 0; }
  std::int64_t count() const { return dims.count(); }
  std::int64_t bytes() const { return dims.count() * size_of(dtype); }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

// Memory that an op may use while it runs and that holds nothing between runs. 64-byte aligned.
struct Scratch {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

}  // namespace reprise
