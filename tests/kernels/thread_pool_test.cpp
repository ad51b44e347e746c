// The pool calls every worker and every index exactly once, cuts work by index alone, and counts
// the CPUs that it may use.
#include "reprise/kernels/thread_pool.h"

#include <sched.h>

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/cpu/cgroup_quota.h"
#include "tests/support/made_up_root.h"

namespace reprise::test {
namespace {

constexpr std::array<int, 4> kThreads = {1, 2, 3, 8};  // 8: more than small machines have cores

BOOST_AUTO_TEST_SUITE(thread_pool)

BOOST_AUTO_TEST_CASE(each_worker_is_called_once_in_each_of_many_runs) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    BOOST_TEST(pool.threads() == threads);
    std::vector<int> calls(static_cast<std::size_t>(threads));
    constexpr int kRuns = 500;
    for (int run = 0; run < kRuns; ++run) {
      pool.run([&](int worker) { ++calls[static_cast<std::size_t>(worker)]; });
    }
    BOOST_TEST(calls == std::vector<int>(static_cast<std::size_t>(threads), kRuns),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(ranges_cover_everything_once_and_end_at_whole_grains) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    for (const std::int64_t count : {0, 1, 15, 16, 17, 64, 65, 1000}) {
      for (const std::int64_t grain : {1, 8, 16, 4096}) {
        std::vector<int> visits(static_cast<std::size_t>(count));
        std::atomic<int> ragged{0};
        pool.parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end, int) {
          if (begin % grain != 0 || (end % grain != 0 && end != count)) ++ragged;
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        BOOST_TEST(ragged == 0);
        BOOST_TEST(visits == std::vector<int>(static_cast<std::size_t>(count), 1),
                   boost::test_tools::per_element());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_same_worker_gets_the_same_range_again) {
  ThreadPool pool(3);
  const auto cut = [&pool] {
    std::array<std::array<std::int64_t, 2>, 3> ranges{};
    pool.parallel_ranges(1000, 8, [&](std::int64_t begin, std::int64_t end, int worker) {
      ranges[static_cast<std::size_t>(worker)] = {begin, end};
    });
    return ranges;
  };
  const auto first = cut();
  for (int i = 0; i < 20; ++i) BOOST_TEST((cut() == first));
}

BOOST_AUTO_TEST_CASE(each_index_is_taken_once) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    for (const std::int64_t count : {0, 1, 2, 17, 1000}) {
      std::vector<int> visits(static_cast<std::size_t>(count));
      std::atomic<int> strangers{0};
      pool.parallel_dynamic(count, [&](std::int64_t index, int worker) {
        ++visits[static_cast<std::size_t>(index)];
        if (worker < 0 || worker >= threads) ++strangers;
      });
      BOOST_TEST(strangers == 0);
      BOOST_TEST(visits == std::vector<int>(static_cast<std::size_t>(count), 1),
                 boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(one_allowed_core_is_one_thread) {
  cpu_set_t before;
  BOOST_REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  BOOST_TEST(available_threads() >= 1);
  BOOST_TEST(available_threads() <= CPU_COUNT(&before));
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  BOOST_REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const int threads = available_threads();
  BOOST_REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  BOOST_TEST(threads == 1);
}

BOOST_AUTO_TEST_SUITE_END()

int limit(const MadeUpRoot& root) { return cpu::cgroup_cpu_limit(root.path()); }

int limit_of_v2(const std::string& cpu_max) {
  MadeUpRoot root;
  root.file("proc/self/cgroup", "0::/job\n").file("sys/fs/cgroup/job/cpu.max", cpu_max);
  return limit(root);
}

int limit_of_v1(const std::string& folder, const std::string& quota) {
  MadeUpRoot root;
  const std::string group = "sys/fs/cgroup/" + folder + "/job/";
  root.file("proc/self/cgroup", "7:memory:/else\n4:cpu,cpuacct:/job\n")
      .file(group + "cpu.cfs_quota_us", quota)
      .file(group + "cpu.cfs_period_us", "100000\n");
  return limit(root);
}

BOOST_AUTO_TEST_SUITE(cgroup_quota)

BOOST_AUTO_TEST_CASE(quotas_are_rounded_down_but_never_to_none) {
  BOOST_TEST(limit_of_v2("400000 100000\n") == 4);
  BOOST_TEST(limit_of_v2("350000 100000\n") == 3);
  BOOST_TEST(limit_of_v2("50000 100000\n") == 1);
  BOOST_TEST(limit_of_v1("cpu", "250000\n") == 2);
  BOOST_TEST(limit_of_v1("cpu,cpuacct", "250000\n") == 2);
}

BOOST_AUTO_TEST_CASE(no_quota_is_no_limit) {
  BOOST_TEST(limit(MadeUpRoot()) == 0);
  BOOST_TEST(limit_of_v2("max 100000\n") == 0);
  BOOST_TEST(limit_of_v1("cpu", "-1\n") == 0);
  for (const char* text : {"", "\n", "100000", "100000 0\n", "-5 100000\n", "many 100000\n"}) {
    BOOST_TEST(limit_of_v2(text) == 0, text);
  }
}

BOOST_AUTO_TEST_CASE(the_tightest_group_on_the_way_up_counts) {
  MadeUpRoot root;
  root.file("proc/self/cgroup", "0::/a/b/c\n")
      .file("sys/fs/cgroup/a/cpu.max", "200000 100000\n")
      .file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
      .file("sys/fs/cgroup/a/b/c/cpu.max", "600000 100000\n");
  BOOST_TEST(limit(root) == 2);
  root.file("sys/fs/cgroup/cpu.max", "100000 100000\n");
  BOOST_TEST(limit(root) == 1);
}

BOOST_AUTO_TEST_CASE(groups_of_others_do_not_count) {
  MadeUpRoot root;
  root.file("proc/self/cgroup", "0::/a\n")
      .file("sys/fs/cgroup/a/cpu.max", "300000 100000\n")
      .file("sys/fs/cgroup/b/cpu.max", "100000 100000\n");
  BOOST_TEST(limit(root) == 3);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::test
