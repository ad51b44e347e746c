// The exit code of the program: who has to act. One table for all errors.
#pragma once

#include <exception>

namespace reprise::qlora_step {

inline constexpr int kExitDone = 0;
inline constexpr int kExitDefect = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInput = 3;
inline constexpr int kExitDoesNotFit = 4;
inline constexpr int kExitNotFinite = 5;
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells have it

int exit_code_of(const std::exception& error);

}  // namespace reprise::qlora_step
