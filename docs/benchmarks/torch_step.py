"""The step of qlora_step --shape smollm2-135m by torch, bitsandbytes and PEFT, eager, on the CPU.

Writes one JSON line a step to --metrics with the fields that qlora_step writes too: step, loss,
seconds (tokens in, adapter updated, loss read) and peak_bytes (VmHWM of the process).
Needs torch, transformers, peft, bitsandbytes and accelerate. Random weights of the shape are made
in --cache by a first call, so that making them counts in no peak.
"""
import argparse
import json
import os
import pathlib
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--compute", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--metrics", type=pathlib.Path, required=True)
    return parser.parse_args()


ARGUMENTS = parse_arguments()
os.environ["OMP_NUM_THREADS"] = str(ARGUMENTS.threads)

import torch  # reads the number of threads above when it is loaded
import transformers
from peft import LoraConfig, get_peft_model

DTYPE = {"bf16": torch.bfloat16, "fp32": torch.float32}[ARGUMENTS.compute]
SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make_checkpoint(folder):
    config = transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192,
        rms_norm_eps=1e-5, tie_word_embeddings=True)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(
        folder)


def load_model(folder):
    quantised = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=DTYPE)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=DTYPE, device_map={"": "cpu"}, quantization_config=quantised)
    model.config.use_cache = False
    return get_peft_model(model, LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.0, target_modules=SEVEN, task_type="CAUSAL_LM")).train()


def peak_bytes():
    lines = pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main():
    if not (ARGUMENTS.cache / "config.json").exists():
        make_checkpoint(ARGUMENTS.cache)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    torch.manual_seed(0)
    torch.set_num_threads(ARGUMENTS.threads)
    model = load_model(ARGUMENTS.cache)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0, fused=True)
    tokens = torch.randint(0, model.config.vocab_size, (ARGUMENTS.batch, ARGUMENTS.seq))
    with open(ARGUMENTS.metrics, "w", encoding="utf-8") as metrics:
        for step in range(1, ARGUMENTS.steps + 1):
            start = time.perf_counter()
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
            optimiser.zero_grad()
            line = {"step": step, "loss": loss.item(), "seconds": time.perf_counter() - start,
                    "peak_bytes": peak_bytes()}
            print(json.dumps(line), file=metrics, flush=True)


if __name__ == "__main__":
    main()
