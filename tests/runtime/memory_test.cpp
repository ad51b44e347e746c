// Buffers and tensors: zeroed, aligned, owned once, and a message that says what did not fit.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "reprise/kernels/error.h"
#include "reprise/runtime/backend.h"
#include "reprise/runtime/buffer.h"
#include "runtime/memory/available_memory.h"
#include "tests/support/made_up_root.h"

namespace reprise::test {
namespace {

bool says(const std::exception& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

BOOST_AUTO_TEST_SUITE(memory)

BOOST_AUTO_TEST_CASE(a_buffer_is_zero_and_aligned) {
  for (const std::int64_t bytes : {1, 63, 64, 4095, 4097, 1 << 20}) {
    const Buffer buffer(bytes, "test");
    BOOST_TEST(buffer.bytes() == bytes);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0u);
    const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes));
    BOOST_TEST(std::memcmp(buffer.data(), zeros.data(), zeros.size()) == 0);
  }
}

BOOST_AUTO_TEST_CASE(an_empty_buffer_has_no_memory) {
  const Buffer buffer(0, "nothing");
  BOOST_TEST(buffer.data() == nullptr);
  BOOST_TEST(buffer.bytes() == 0);
}

BOOST_AUTO_TEST_CASE(moving_hands_over_the_memory) {
  Buffer first(100, "first");
  std::memset(first.data(), 7, 100);
  std::byte* const data = first.data();
  Buffer second(std::move(first));
  BOOST_TEST(second.data() == data);
  BOOST_TEST(first.data() == nullptr);  // NOLINT: what a moved-from buffer holds is promised
  Buffer third(200, "third");
  third = std::move(second);
  BOOST_TEST(third.data() == data);
  BOOST_TEST(third.bytes() == 100);
  BOOST_TEST(std::to_integer<int>(third.data()[99]) == 7);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_named_with_its_size) {
  // 2^60 bytes lie beyond the address space of every machine.
  BOOST_CHECK_EXCEPTION(Buffer(std::int64_t{1} << 60, "the activations"), DoesNotFit,
                        [](const DoesNotFit& error) {
                          return says(error, "the activations") && says(error, "1048576.0 TiB");
                        });
  BOOST_CHECK_EXCEPTION(
      make_tensor(DType::kF32, {std::int64_t{1} << 40, std::int64_t{1} << 40}, "logits"),
      DoesNotFit, [](const DoesNotFit& error) {
        return says(error, "logits") && says(error, "1099511627776");
      });
  BOOST_CHECK_THROW(Buffer(-1, "negative"), Error);
  BOOST_CHECK_THROW(make_tensor(DType::kF32, {-2, -3}, "negative"), Error);
}

BOOST_AUTO_TEST_CASE(a_tensor_has_the_bytes_of_its_dimensions) {
  const Tensor tensor = make_tensor(DType::kBF16, {3, 5, 7}, "t");
  BOOST_TEST(tensor.buffer.bytes() == 3 * 5 * 7 * 2);
  BOOST_TEST(tensor.view().bytes() == tensor.buffer.bytes());
  BOOST_TEST(tensor.present());
  BOOST_TEST(!Tensor().present());
}

BOOST_AUTO_TEST_CASE(backends_say_what_they_are) {
  const auto cpu = make_cpu_backend({.isa = Isa::kGeneric, .threads = 2});
  BOOST_TEST(cpu->name() == "cpu (generic, 2 threads)");
  BOOST_TEST(cpu->threads() == 2);
  BOOST_TEST(cpu->execution().pool != nullptr);
  BOOST_TEST(cpu->allocate(10, "x").bytes() == 10);
  const auto one = make_cpu_backend({.isa = Isa::kGeneric, .threads = 1});
  BOOST_TEST(one->name() == "cpu (generic, 1 thread)");
  const auto reference = make_reference_backend();
  BOOST_TEST(reference->name() == "reference (1 thread)");
  BOOST_TEST(reference->threads() == 1);
  BOOST_TEST(!reference->ops().cross_entropy.empty());
  BOOST_CHECK_THROW(make_cpu_backend({.isa = Isa::kGeneric, .threads = 0}), Error);
}

std::int64_t left_of_group(const std::string& folder, const std::vector<std::string>& names,
                           const std::vector<std::string>& texts) {
  MadeUpRoot root;
  root.file("proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 5 kB\nMemAvailable: 8000000 kB\n")
      .file("proc/self/cgroup", folder.empty() ? "0::/job\n" : "4:memory:/job\n");
  for (std::size_t i = 0; i < names.size(); ++i) {
    root.file("sys/fs/cgroup/" + folder + "job/" + names[i], texts[i]);
  }
  return available_host_bytes(root.path());
}

BOOST_AUTO_TEST_CASE(the_machine_and_its_groups_say_what_is_left) {
  constexpr std::int64_t kMachine = std::int64_t{8000000} * 1024;
  BOOST_TEST(left_of_group("", {}, {}) == kMachine);
  BOOST_TEST(left_of_group("", {"memory.max", "memory.current"}, {"max\n", "5\n"}) == kMachine);
  BOOST_TEST(left_of_group("", {"memory.max", "memory.current"}, {"1000\n", "400\n"}) == 600);
  BOOST_TEST(left_of_group("", {"memory.max", "memory.current"}, {"1000\n", "4000\n"}) == 0);
  // Idle pages of files go when memory is needed.
  BOOST_TEST(left_of_group("", {"memory.max", "memory.current", "memory.stat"},
                           {"1000\n", "900\n", "anon 5\ninactive_file 700\nfile 800\n"}) == 800);
  BOOST_TEST(left_of_group("memory/", {"memory.limit_in_bytes", "memory.usage_in_bytes"},
                           {"1000\n", "400\n"}) == 600);
  // What version 1 says when there is no limit.
  BOOST_TEST(left_of_group("memory/", {"memory.limit_in_bytes", "memory.usage_in_bytes"},
                           {"9223372036854771712\n", "400\n"}) == kMachine);
}

BOOST_AUTO_TEST_CASE(a_group_above_counts_too) {
  MadeUpRoot root;
  root.file("proc/meminfo", "MemAvailable: 8000000 kB\n")
      .file("proc/self/cgroup", "0::/a/b\n")
      .file("sys/fs/cgroup/a/memory.max", "1000\n")
      .file("sys/fs/cgroup/a/memory.current", "100\n")
      .file("sys/fs/cgroup/a/b/memory.max", "5000\n")
      .file("sys/fs/cgroup/a/b/memory.current", "100\n");
  BOOST_TEST(available_host_bytes(root.path()) == 900);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
