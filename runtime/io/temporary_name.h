// Names of temporary files and folders.
#pragma once

#include <string>

namespace reprise {

// 30 bytes whatever the target is called, so that no long name of a run makes it exceed NAME_MAX;
// 64 random bits, so that nobody can plant a file or link of that name beforehand.
std::string make_temporary_name();

}  // namespace reprise
