#!/usr/bin/env python3
"""Prints what a run came to, from the files in its --out folder.

Usage: summary_table.py RUN_FOLDER PICTURE
"""
import json
import os
import sys

MIB = 1024 * 1024


def read_json(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def rows_of(folder, picture):
    config, summary = read_json(folder, "config.json"), read_json(folder, "summary.json")
    adapter = os.path.join(folder, "adapter")
    weights = os.path.join(adapter, "adapter_model.safetensors")
    yield "model", config["model"]
    yield "trained", f'{summary["steps"]} steps, {summary["real_tokens"]} tokens'
    yield "training loss", f'{summary["first_loss"]:.3f} -> {summary["last_loss"]:.3f}'
    if summary["eval_before"] is not None and summary["eval_after"] is not None:
        before, after = summary["eval_before"], summary["eval_after"]
        yield "evaluation loss", f"{before:.3f} -> {after:.3f} (fell by {before - after:.3f})"
    yield "step", f'{summary["seconds"] / summary["steps"]:.3f} s, {config["compute"]}, ' \
                  f'{config["threads"]} threads'
    yield "peak memory", f'{summary["peak_bytes"] / MIB:.0f} MiB'
    yield "adapter", f"{adapter} ({os.path.getsize(weights) / MIB:.1f} MiB, PEFT layout)"
    yield "loss curve", picture


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    rows = list(rows_of(sys.argv[1], sys.argv[2]))
    width = max(len(name) for name, _ in rows)
    print("-" * 72)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    print("-" * 72)


if __name__ == "__main__":
    main()
