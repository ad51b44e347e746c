// One violation of an op's contract at a time.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "reprise/kernels/op_table.h"

namespace reprise::test {

inline constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kI32 = DType::kI32;

// Operands with memory of their own, so that nothing overlaps unless a case makes it so.
inline View made(DType dtype, Dims dims) {
  static std::deque<std::vector<std::byte>> memory;
  memory.emplace_back(static_cast<std::size_t>(dims.count() * size_of(dtype)));
  return {memory.back().data(), dtype, dims};
}

template <class Args>
struct Violation {
  const char* says;  // part of the reason
  std::function<void(Args&)> commit;
};

template <class Args>
void refuses(const Args& legal, const std::vector<Violation<Args>>& violations) {
  BOOST_TEST(check(legal).ok(), check(legal).reason());
  for (const Violation<Args>& violation : violations) {
    Args args = legal;
    violation.commit(args);
    const Support support = check(args);
    BOOST_TEST(!support.ok(), "accepted although: " << violation.says);
    BOOST_TEST(support.reason().find(violation.says) != std::string::npos,
               "\"" << support.reason() << "\" does not say \"" << violation.says << "\"");
  }
}

// The last byte of `first` is the first of `second`.
template <class First, class Second>
void chain(const First& first, Second& second) {
  auto* begin = static_cast<const std::byte*>(first.data);
  second.data = const_cast<std::byte*>(begin + first.bytes() - 1);
}

}  // namespace reprise::test
