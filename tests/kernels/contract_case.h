// A contract as a table: one legal set of arguments and what every operand of it is. From that
// follow the violations that all ops share: a wrong type, a wrong size, a missing operand, and
// every pair of operands that may not overlap. What is particular to an op is listed beside it.
#pragma once

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise::test {

enum class Presence { kRequired, kOptional };
enum class Sizes {
  kFollow,  // each follows from another operand
  kLead,    // other operands follow this one, so that a wrong size shows in those
};

template <class Args>
struct OperandCase {
  const char* name;
  bool written = false;
  std::function<ConstView(const Args&)> get;
  std::function<void(Args&, const ConstView&)> set;
  Presence presence = Presence::kRequired;
  Sizes sizes = Sizes::kFollow;

  OperandCase optional() const {
    OperandCase copy = *this;
    copy.presence = Presence::kOptional;
    return copy;
  }
  OperandCase leading() const {
    OperandCase copy = *this;
    copy.sizes = Sizes::kLead;
    return copy;
  }
};

// `where` is a member pointer, or a function that returns a reference to the member.
template <class Args, class Where>
OperandCase<Args> read(const char* name, Where where) {
  return {.name = name,
          .get = [where](const Args& args) { return std::invoke(where, args); },
          .set = [where](Args& args, const ConstView& view) { std::invoke(where, args) = view; }};
}
template <class Args, class Where>
OperandCase<Args> written(const char* name, Where where) {
  return {
      .name = name,
      .written = true,
      .get = [where](const Args& args) { return ConstView(std::invoke(where, args)); },
      .set =
          [where](Args& args, const ConstView& view) {
            std::invoke(where, args) = View{const_cast<void*>(view.data), view.dtype, view.dims};
          }};
}

template <class Args>
struct Violation {
  std::string named;  // how the message must begin
  std::function<void(Args&)> change;
};

template <class Args>
struct ContractCase {
  Args legal;
  std::vector<OperandCase<Args>> operands;
  std::vector<std::pair<std::string, std::string>> in_place;  // output, input: one memory is legal
  std::vector<Violation<Args>> violations;
};

// Addresses for operands, far enough from each other that one laid over the end of another touches
// no third. A check never reads through them.
class OperandMemory {
 public:
  View take(DType dtype, const Dims& dims) {
    const View view{bytes_.data() + used_, dtype, dims};
    BOOST_REQUIRE(view.bytes() < static_cast<std::int64_t>(kApart / 2));
    used_ += kApart;
    BOOST_REQUIRE(used_ <= bytes_.size());
    return view;
  }
  View f32(const Dims& dims) { return take(DType::kF32, dims); }

 private:
  static constexpr std::size_t kApart = 1 << 15;
  inline static std::array<std::byte, 20 * kApart> bytes_;
  std::size_t used_ = kApart / 2;
};

// The same sizes but for one, or for one more axis.
inline Dims changed(const Dims& dims, int axis, std::int64_t size) {
  std::array<std::int64_t, 4> s{};
  for (int i = 0; i < dims.rank(); ++i) s[static_cast<std::size_t>(i)] = dims[i];
  s[static_cast<std::size_t>(axis)] = size;
  switch (std::max(dims.rank(), axis + 1)) {
    case 1:
      return {s[0]};
    case 2:
      return {s[0], s[1]};
    case 3:
      return {s[0], s[1], s[2]};
    default:
      return {s[0], s[1], s[2], s[3]};
  }
}

template <class Args>
void check_refused_as(const Args& args, const std::string& named, const std::string& what) {
  const Support support = check(args);
  BOOST_CHECK_MESSAGE(!support.ok(), what << " was accepted");
  BOOST_CHECK_MESSAGE(support.ok() || support.reason().starts_with(named),
                      what << ": not \"" << named << "\" but: " << support.reason());
}

template <class Args>
void check_overlap(const Args& args, const std::string& a, const std::string& b) {
  const std::string reason = check(args).reason();
  BOOST_CHECK_MESSAGE(
      reason == a + " and " + b + " overlap" || reason == b + " and " + a + " overlap",
      a << " over " << b << ": " << (reason.empty() ? "accepted" : reason));
}

template <class Args>
void check_legal(const Args& args, const std::string& what) {
  const Support support = check(args);
  BOOST_CHECK_MESSAGE(support.ok(), what << " was refused: " << support.reason());
}

template <class Args>
void check_operand(const ContractCase<Args>& c, const OperandCase<Args>& operand) {
  const std::string name = operand.name;
  const ConstView view = operand.get(c.legal);
  const auto with = [&](DType dtype, const Dims& dims) {
    Args args = c.legal;
    operand.set(args, {view.data, dtype, dims});
    return args;
  };
  const std::string named = name + " must ";
  check_refused_as(with(DType::kI64, view.dims), named, name + " of I64");
  Args without = c.legal;
  operand.set(without, {});
  if (operand.presence == Presence::kOptional) {
    check_legal(without, "without " + name);
  } else {
    check_refused_as(without, named, "without " + name);
  }
  if (view.dims.rank() < Dims::kMaxRank) {
    check_refused_as(with(view.dtype, changed(view.dims, view.dims.rank(), 1)),
                     operand.sizes == Sizes::kLead ? "" : named, name + " with one more axis");
  }
  for (int axis = 0; axis < view.dims.rank() && operand.sizes == Sizes::kFollow; ++axis) {
    for (const std::int64_t step : {-1, 1}) {
      check_refused_as(with(view.dtype, changed(view.dims, axis, view.dims[axis] + step)), named,
                       name + " axis " + std::to_string(axis) + " by " + std::to_string(step));
    }
  }
}

// `output` laid over `other`: exactly, and by a byte at either end of it.
template <class Args>
void check_pair(const ContractCase<Args>& c, const OperandCase<Args>& output,
                const OperandCase<Args>& other) {
  const ConstView view = output.get(c.legal), onto = other.get(c.legal);
  const auto* begin = static_cast<const std::byte*>(onto.data);
  const auto at = [&](const std::byte* place) {
    Args args = c.legal;
    output.set(args, {place, view.dtype, view.dims});
    return args;
  };
  bool may_be_same = false;
  for (const auto& [out, in] : c.in_place) may_be_same |= out == output.name && in == other.name;
  if (may_be_same) {
    check_legal(at(begin), std::string(output.name) + " over " + other.name);
  } else {
    check_overlap(at(begin), output.name, other.name);
  }
  check_overlap(at(begin + onto.bytes() - 1), output.name, other.name);
  check_overlap(at(begin + 1 - view.bytes()), output.name, other.name);
}

template <class Args>
void check_contract(const ContractCase<Args>& c) {
  check_legal(c.legal, "the legal case");
  for (const OperandCase<Args>& operand : c.operands) {
    check_operand(c, operand);
    for (const OperandCase<Args>& other : c.operands) {
      if (operand.written && &other != &operand) check_pair(c, operand, other);
    }
  }
  for (const Violation<Args>& violation : c.violations) {
    Args args = c.legal;
    violation.change(args);
    check_refused_as(args, violation.named, "what should name \"" + violation.named + "\"");
  }
}

}  // namespace reprise::test
