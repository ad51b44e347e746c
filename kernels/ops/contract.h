// What the checks of the ops share: comparing types and dimensions, with a message that names both.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "reprise/kernels/nf4.h"
#include "reprise/kernels/step_params.h"
#include "reprise/kernels/support.h"
#include "reprise/kernels/view.h"

namespace reprise {

// An operand with the name that a message gives it.
struct NamedView {
  const char* name;
  ConstView view;
};
NamedView packed_of(const Nf4View& weight);  // "weight.packed"
NamedView absmax_of(const Nf4View& weight);  // "weight.absmax"
NamedView bytes_of(const Scratch& scratch);  // "scratch"
NamedView bytes_of(const char* name, const StepParams* params);

// Collects the first thing that is wrong with an op's arguments.
class Contract {
 public:
  // `view` has this type and these dimensions.
  Contract& is(const char* name, const ConstView& view, DType dtype, const Dims& dims);
  // `view` is F32 or BF16 and has these dimensions.
  Contract& is_float(const char* name, const ConstView& view, const Dims& dims);
  // Any other condition; `reason` is what to say when it does not hold.
  Contract& holds(bool condition, const char* reason);
  // No operand that is written shares a byte with one that is read or with another written one.
  // Where an op may work in place, that pair is left out here and given to apart_or_same.
  Contract& separate(std::initializer_list<NamedView> written,
                     std::initializer_list<NamedView> read);
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
