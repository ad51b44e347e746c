# shellcheck shell=bash disable=SC2034
# What Reprise needs from Debian 12 or Ubuntu 24.04, and how it gets there. Sourced by the scripts,
# never run by itself.

build_packages=(
  g++ cmake ninja-build
  libboost-dev libboost-program-options-dev  # Boost.Test (header-only), Boost.Program_options
  nlohmann-json3-dev libpcre2-dev            # JSON; regular expressions of tokenizers
  libdnnl-dev                                # oneDNN: the GEMM of --linear dequant and cached
  libboost-context-dev                       # the threads of the emulated CUDA device
)

# For the tests alone: the real model (pip), CUDA's compiler (venv), failing writes (strace),
# formatting.
test_packages=(python3 python3-pip python3-venv strace clang-format-14)

# Of the packages named, those that are not installed, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q ' installed$' ||
      echo "$package"
  done
}

# Installs those of the packages named that are missing, and nothing if none is.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is no Debian or Ubuntu. Install these packages or their counterparts first: $*" >&2
    return 1
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if [ "${#missing[@]}" -eq 0 ]; then
    echo "Installed already: $*"
    return
  fi
  echo "Installing ${missing[*]}"
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "Installing packages needs root, and there is no sudo: ${missing[*]}" >&2
      return 1
    fi
    root=(sudo)
  fi
  # Without a network an answer within seconds, not minutes.
  local impatient=(-o Acquire::Retries=1 -o Acquire::http::Timeout=20)
  "${root[@]}" apt-get "${impatient[@]}" update -qq &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get "${impatient[@]}" install -y -qq --no-install-recommends "${missing[@]}"
}
