// The options as Boost.Program_options sees them: names, value types, help, in groups.
#pragma once

#include <boost/program_options/options_description.hpp>

namespace reprise::qlora_step {

boost::program_options::options_description option_list();

}  // namespace reprise::qlora_step
