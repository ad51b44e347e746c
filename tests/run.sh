#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors and runs every test, compiles the CUDA
# kernels for every architecture, then builds and tests once more under AddressSanitizer and
# UndefinedBehaviorSanitizer. Ends with "N passed, N failed".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source apps/dependencies.sh
source apps/demo/model.sh
source apps/cuda_toolchain.sh

# The sanitized half is left out, loudly, on machines too slow for it: it has taken up to twice as
# long as the first half, and both are to end within an hour.
readonly sanitize_if_done_within_s=1500

passed=0
failed=0
skipped=0

print_usage() {
  cat <<'USAGE'
Usage: tests/run.sh [--deps-only | --release-only]
  --deps-only     install what is missing and stop
  --release-only  leave out the build and the tests under the sanitizers
USAGE
}

build_preset() {
  local preset=$1
  cmake --preset "$preset"
  cmake --build --preset "$preset"
}

# Runs the tests of a preset and adds what ctest says about each to the counts. Everything that
# neither passed nor was skipped counts as failed: time-outs, crashes and missing programs too.
test_preset() {
  local preset=$1
  local log="build/$preset/ctest.log"
  local status=0
  ctest --preset "$preset" -j "$(nproc)" 2>&1 | tee "$log" || status=$?
  local lines
  lines=$(grep -E '^ *[0-9]+/[0-9]+ Test +#[0-9]+: ' "$log" || true)
  local total ok skip
  total=$(grep -c . <<<"$lines" || true)
  ok=$(grep -cE ' Passed +[0-9.]+ sec' <<<"$lines" || true)
  skip=$(grep -c '\*\*\*Skipped ' <<<"$lines" || true)
  passed=$((passed + ok))
  skipped=$((skipped + skip))
  failed=$((failed + total - ok - skip))
  if [ "$status" -ne 0 ] && [ "$((total - ok - skip))" -eq 0 ]; then
    echo "ctest itself failed with $status" >&2
    failed=$((failed + 1))
  fi
}

# nvcc for all architectures. Counts as one test: what compiles here can still be wrong on a GPU.
compile_cuda() {
  local toolkit
  toolkit=$(cuda_toolkit)
  if [ -z "$toolkit" ]; then
    echo "Left out: compiling the CUDA kernels, as there is no nvcc and none could be fetched."
    skipped=$((skipped + 1))
    return
  fi
  if cmake --preset cuda -DCMAKE_CUDA_COMPILER="$toolkit/bin/nvcc" -DREPRISE_BUILD_APPS=OFF \
    -DREPRISE_BUILD_TESTS=OFF && cmake --build --preset cuda --target reprise_kernels_cuda; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
}

run_tests() {
  local release_only=$1
  build_preset release
  test_preset release
  compile_cuda
  if [ "$release_only" = yes ]; then
    echo "Left out as asked: the tests under the sanitizers."
  elif [ "$SECONDS" -gt "$sanitize_if_done_within_s" ]; then
    echo "LEFT OUT: the tests under the sanitizers, as the first half took $SECONDS s. By hand:" \
      "cmake --preset asan && cmake --build --preset asan && ctest --preset asan"
  else
    build_preset asan
    test_preset asan
  fi
}

main() {
  local release_only=no
  case "${1:-}" in
    "") ;;
    --deps-only) install_packages "${build_packages[@]}" "${test_packages[@]}"; exit ;;
    --release-only) release_only=yes ;;
    --help | -h) print_usage; exit ;;
    *) print_usage >&2; exit 2 ;;
  esac
  install_packages "${build_packages[@]}" "${test_packages[@]}"
  get_cuda_toolchain || echo "No CUDA headers, so the emulated device is left out."
  CUDA_PATH=$(cuda_toolkit)
  export CUDA_PATH
  get_model || echo "No model, so the tests that need a real one will be skipped."
  run_tests "$release_only"
  local summary="$passed passed, $failed failed"
  [ "$skipped" -eq 0 ] || summary+=", $skipped skipped"
  echo "$summary"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

main "$@"
