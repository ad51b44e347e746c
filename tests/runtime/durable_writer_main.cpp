// The program that write_faults_test runs under injected faults.
//   durable_writer file PATH TEXT | folder PATH TEXT
// A folder gets the files weights and config, both with TEXT. Exit codes: 0 written; 10 written,
// but durability is uncertain; 11 not written.
#include <cstdio>
#include <string>

#include "reprise/runtime/durable_file.h"

int main(int argc, char** argv) {
  using namespace reprise;
  if (argc != 4) return 2;
  const std::string text = argv[3];
  const ByteParts parts = {std::as_bytes(std::span(text))};
  try {
    if (std::string(argv[1]) == "file") {
      write_durably(argv[2], parts);
    } else {
      replace_folder_files(argv[2], {{"weights", parts}, {"config", parts}});
    }
  } catch (const DurabilityUncertain& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 10;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 11;
  }
  return 0;
}
