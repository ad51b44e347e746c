// What the checks of the ops share: comparing types and dimensions, with a message that names both.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

struct NamedView {
  const char* name;
  ConstView view;
};

// Collects the first thing that is wrong with an op's arguments.
class Contract {
 public:
  // `view` has this type and these dimensions.
  Contract& is(const char* name, const ConstView& view, DType dtype, const Dims& dims);
  // `view` is F32 or BF16 and has these dimensions.
  Contract& is_float(const char* name, const ConstView& view, const Dims& dims);
  // Any other condition; `reason` is what to say when it does not hold.
  Contract& holds(bool condition, const char* reason);
  // No output shares a byte with an input or with another output. Absent operands share none.
  Contract& outputs_apart(std::initializer_list<NamedView> outputs,
                          std::initializer_list<NamedView> inputs);
  // Two operands of which one is written share no byte.
  Contract& apart(const char* name_a, const ConstView& a, const char* name_b, const ConstView& b);
  // They share no byte, or are the very same memory with elements of one size.
  Contract& apart_or_same(const char* name_a, const ConstView& a, const char* name_b,
                          const ConstView& b);

  Support result() const { return reason_.empty() ? Support::yes() : Support::no(reason_); }

 private:
  void fail(std::string reason);
  std::string reason_;
};

}  // namespace reprise
