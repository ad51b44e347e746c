// Learning-rate schedules.
#include "apps/qlora_step/schedule.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

namespace reprise::qlora_step {
namespace {

constexpr Schedule kAll[] = {Schedule::kConstant, Schedule::kLinear, Schedule::kCosine};

BOOST_AUTO_TEST_SUITE(schedule)

BOOST_AUTO_TEST_CASE(names_and_values_match) {
  for (const Schedule schedule : kAll) {
    BOOST_CHECK(parse_schedule(name_of(schedule)) == schedule);
  }
  BOOST_CHECK(!parse_schedule("quadratic"));
}

BOOST_AUTO_TEST_CASE(every_step_of_every_schedule_moves) {
  for (const Schedule schedule : kAll) {
    for (const std::int64_t warmup : {0, 1, 3}) {
      const ScheduleOptions options{
          .schedule = schedule, .peak = 0.5, .warmup = warmup, .steps = 7};
      double highest = 0;
      for (std::int64_t step = 1; step <= 7; ++step) {
        const double rate = learning_rate(options, step);
        BOOST_CHECK_GT(rate, 0);
        BOOST_CHECK_LE(rate, 0.5);
        highest = std::max(highest, rate);
      }
      BOOST_CHECK_EQUAL(highest, 0.5);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_warm_up_rises_by_equal_parts) {
  const ScheduleOptions options{
      .schedule = Schedule::kCosine, .peak = 0.8, .warmup = 4, .steps = 10};
  BOOST_CHECK_CLOSE(learning_rate(options, 1), 0.2, 1e-12);
  BOOST_CHECK_CLOSE(learning_rate(options, 3), 0.6, 1e-12);
  BOOST_CHECK_CLOSE(learning_rate(options, 4), 0.8, 1e-12);
  BOOST_CHECK_CLOSE(learning_rate(options, 5), 0.8, 1e-12);
}

BOOST_AUTO_TEST_CASE(constant_stays) {
  const ScheduleOptions options{.peak = 1e-3, .steps = 5};
  for (std::int64_t step = 1; step <= 5; ++step) {
    BOOST_CHECK_EQUAL(learning_rate(options, step), 1e-3);
  }
}

BOOST_AUTO_TEST_CASE(linear_and_cosine_fall_as_their_formulas_say) {
  ScheduleOptions options{.schedule = Schedule::kLinear, .peak = 1, .warmup = 2, .steps = 6};
  BOOST_CHECK_CLOSE(learning_rate(options, 3), 1.0, 1e-12);
  BOOST_CHECK_CLOSE(learning_rate(options, 4), 0.75, 1e-12);
  BOOST_CHECK_CLOSE(learning_rate(options, 6), 0.25, 1e-12);
  options.schedule = Schedule::kCosine;
  BOOST_CHECK_CLOSE(learning_rate(options, 3), 1.0, 1e-12);
  BOOST_CHECK_CLOSE(learning_rate(options, 5), 0.5, 1e-10);
  BOOST_CHECK_CLOSE(learning_rate(options, 6), 0.5 - 0.5 * std::sqrt(0.5), 1e-10);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace reprise::qlora_step
