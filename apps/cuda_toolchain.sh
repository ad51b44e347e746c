# shellcheck shell=bash
# NVIDIA's compiler and headers for machines without them, from PyPI. They are NVIDIA's property, so
# they are installed, never kept here. Sourced by the scripts, never run by itself.

cuda_toolchain_folder=build/cuda-toolchain
# Compiler, its passes, headers, and the C++ core libraries, which cuda_fp16.h includes. 104 MB.
cuda_packages=(
  nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
)

# The folder of the CUDA Toolkit: of the machine, or of the wheels, or nothing.
cuda_toolkit() {
  local nvcc
  nvcc=$(command -v nvcc || true)
  for nvcc in "$nvcc" /usr/local/cuda/bin/nvcc; do
    if [ -x "$nvcc" ]; then
      dirname "$(dirname "$(readlink -f "$nvcc")")"
      return
    fi
  done
  compgen -G "$PWD/$cuda_toolchain_folder/lib/python3*/site-packages/nvidia/cu13" || true
}

# Leaves a toolkit where cuda_toolkit finds it. Fails within seconds without a network.
get_cuda_toolchain() {
  [ -z "$(cuda_toolkit)" ] || return 0
  echo "Fetching CUDA's compiler and headers (${cuda_packages[*]}, 104 MB)"
  python3 -m venv "$cuda_toolchain_folder" || return
  "$cuda_toolchain_folder/bin/pip" install --quiet --no-deps --retries 1 --timeout 20 \
    "${cuda_packages[@]}" || { rm -rf "$cuda_toolchain_folder"; return 1; }
  local toolkit
  toolkit=$(cuda_toolkit)
  # What CMake and the linker expect: lib64, and libX.so for each libX.so.N.
  ln -sfn lib "$toolkit/lib64"
  local library
  for library in "$toolkit"/lib/lib*.so.*; do
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"
  done
}
