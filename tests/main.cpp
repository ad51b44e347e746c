// The framework and main() of every test program.
#define BOOST_TEST_MODULE reprise
#include <boost/test/included/unit_test.hpp>
