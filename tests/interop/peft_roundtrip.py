"""Adapters exchanged with PEFT itself, both ways: by what they compute, by their keys and shapes.

Usage: peft_roundtrip.py QLORA_STEP DATA      (the program, and tests/data)
Needs torch, transformers, peft and safetensors, any build for CPUs; exits 77 where they cannot be
imported. Last run with torch 2.15.0, transformers 5.24.0, peft 0.21.2, safetensors 0.8.0.
ctest takes the interpreter that CMake found: -D Python3_EXECUTABLE=VENV/bin/python names another.
"""
import contextlib
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # every file is here; the network must not change a result

try:
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

DATA = pathlib.Path(sys.argv.pop()) / "golden"
QLORA_STEP = pathlib.Path(sys.argv.pop())

# Both sides evaluate in FP32 and are within 2.5e-6 of float64 (see DATA/README.md); 1e-4 leaves
# room for other orders of summation and catches every wrong term.
TOLERANCE = 1e-4

# What the golden training runs used.
TRAINING = "--steps 5 --lr 1e-3 --weight-decay 0.01 --clip 0 --schedule constant".split()

SMOLLM2 = transformers.LlamaConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
    num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True)
ALL_SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def qlora_step(*arguments):
    return subprocess.run([QLORA_STEP, *map(str, arguments), "--quiet"], capture_output=True,
                          text=True, check=False)


def run(*arguments):
    result = qlora_step(*arguments)
    if result.returncode != 0:
        raise AssertionError(f"exit code {result.returncode}: {result.stderr}")


def on_golden(model, *arguments, base="nf4"):
    run("--model", DATA / model / base, "--data", DATA / model / "batch.safetensors",
        "--compute", "fp32", *arguments)


def decoded(tensors, name):
    """The weight that bitsandbytes packed, high nibble first, as FP32."""
    state = json.loads(bytes(tensors[f"{name}.quant_state.bitsandbytes__nf4"].tolist()))
    packed = tensors[name].flatten()
    codes = torch.stack([packed >> 4, packed & 15], dim=1).flatten().long()
    blocks = tensors[f"{name}.quant_map"][codes].view(-1, state["blocksize"])
    return (blocks * tensors[f"{name}.absmax"].view(-1, 1)).view(state["shape"])


def golden_base(model):
    """The golden model on its NF4 weights, in FP32: the same base for both sides, bit for bit."""
    config = transformers.AutoConfig.from_pretrained(DATA / model / "bf16")
    base = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tensors = load_file(DATA / model / "nf4/model.safetensors")
    state = {name: decoded(tensors, name) if f"{name}.absmax" in tensors else value.float()
             for name, value in tensors.items() if ".weight." not in name}
    absent, unexpected = base.load_state_dict(state, strict=False)
    assert not unexpected and absent in ([], ["lm_head.weight"]), (absent, unexpected)
    base.tie_weights()
    return base.eval()


def logits_of(model, name):
    with torch.no_grad():
        return model(load_file(DATA / name / "batch.safetensors")["input_ids"]).logits


def relative_error(ours, theirs):
    return (torch.linalg.norm(ours.double() - theirs.double()) /
            torch.linalg.norm(theirs.double())).item()


def shapes(state):
    return {name: tuple(value.shape) for name, value in state.items()}


def adapter_file(folder):
    return load_file(folder / "adapter_model.safetensors")


@contextlib.contextmanager
def complaints():
    """Collects every warning of Python and every log line from warning level up, but for what
    PEFT and transformers say about each other's changing functions."""
    class Keep(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    found, keep = [], Keep(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("", "peft", "transformers")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for logger in loggers:
            logger.addHandler(keep)
        yield found
        for logger in loggers:
            logger.removeHandler(keep)
    found.extend(str(warning.message) for warning in caught
                 if not issubclass(warning.category, (DeprecationWarning, FutureWarning)))


class Interchange(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        torch.manual_seed(1)

    def loaded_by_peft(self, base, folder):
        with complaints() as found:
            model = PeftModel.from_pretrained(base, folder)
        self.assertEqual(found, [])
        return model.eval()

    def our_logits(self, model, adapter, **more):
        dump = self.folder / "dump.safetensors"
        on_golden(model, "--adapter", adapter, "--steps", 1, "--dump", dump, **more)
        return load_file(dump)["logits"]

    def check_logits(self, name, ours, theirs):
        """Equal, and far from the base model's, so that the adapter is in both."""
        error = relative_error(ours, theirs)
        print(f"{self._testMethodName}, {name}: logits differ by {error:.1e}")
        self.assertLess(error, TOLERANCE)
        self.assertGreater(relative_error(logits_of(golden_base(name), name), theirs), 0.01)

    def train(self, model, adapter, *arguments):
        on_golden(model, "--adapter", adapter, "--out", self.folder / "out", *arguments)
        return self.folder / "out/adapter"

    def made_by_peft(self, name, dtype, **config):
        """Saves a random adapter; returns its folder and what PEFT computes with it."""
        model = get_peft_model(golden_base(name), LoraConfig(
            init_lora_weights=False, lora_dropout=0.0, task_type="CAUSAL_LM", **config)).eval()
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(dtype)
        model.save_pretrained(self.folder / "made")
        return self.folder / "made", logits_of(model.float(), name)

    def test_peft_reads_what_we_trained(self):
        for name, base in (("qwen2", "bf16"), ("llama", "nf4")):
            with self.subTest(name):
                ours = self.train(name, DATA / name / "train-nf4/adapter-init", *TRAINING)
                model = self.loaded_by_peft(golden_base(name), ours)
                self.check_logits(name, self.our_logits(name, ours, base=base),
                                  logits_of(model, name))
                written, read = adapter_file(ours), get_peft_model_state_dict(model)
                self.assertEqual(written.keys(), read.keys())
                for key, value in written.items():
                    self.assertTrue(torch.equal(value, read[key]), key)

    def test_peft_writes_our_configuration_back(self):
        ours = self.train("qwen2", DATA / "qwen2/train-nf4/adapter-init", *TRAINING)
        self.loaded_by_peft(golden_base("qwen2"), ours).save_pretrained(self.folder / "back")
        written, back = (json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
                         for folder in (ours, self.folder / "back"))
        for config in (written, back):
            config["target_modules"].sort()
        self.assertEqual(written, {key: back.get(key, "absent") for key in written})
        self.assertEqual(shapes(adapter_file(ours)), shapes(adapter_file(self.folder / "back")))

    def test_we_read_what_peft_saved(self):
        cases = [("qwen2", torch.float32, 5, 12, ["q_proj", "v_proj", "down_proj"]),
                 ("qwen2", torch.bfloat16, 1, 3, ["mlp.up_proj"]),
                 ("llama", torch.float16, 16, 8, ["k_proj", "o_proj", "gate_proj"]),
                 ("llama", torch.float32, 8, 16, "all-linear")]
        for name, dtype, rank, alpha, targets in cases:
            with self.subTest(name, targets=targets):
                adapter, theirs = self.made_by_peft(name, dtype, r=rank, lora_alpha=alpha,
                                                    target_modules=targets)
                self.check_logits(name, self.our_logits(name, adapter), theirs)

    def test_an_adapter_goes_from_peft_to_us_and_back(self):
        made, before = self.made_by_peft("llama", torch.float32, r=5, lora_alpha=12,
                                         target_modules=["q_proj", "v_proj", "down_proj"])
        trained = self.train("llama", made, *TRAINING)
        self.assertEqual(shapes(adapter_file(made)), shapes(adapter_file(trained)))
        model = self.loaded_by_peft(golden_base("llama"), trained)
        config = model.peft_config["default"]
        self.assertEqual((config.r, config.lora_alpha, set(config.target_modules)),
                         (5, 12, {"q_proj", "v_proj", "down_proj"}))
        after = logits_of(model, "llama")
        self.check_logits("llama", self.our_logits("llama", trained), after)
        self.assertGreater(relative_error(before, after), 0.01)

    def test_another_arithmetic_is_refused_by_name(self):
        for option in ("use_rslora", "use_dora"):
            adapter, _ = self.made_by_peft("qwen2", torch.float32, r=8, target_modules=["q_proj"],
                                           **{option: True})
            result = qlora_step("--model", DATA / "qwen2/nf4", "--adapter", adapter,
                                "--data", DATA / "qwen2/batch.safetensors", "--steps", 1)
            self.assertEqual(result.returncode, 3)
            self.assertIn(f'"{option}" is true', result.stderr)

    def test_smollm2_has_the_keys_of_peft(self):
        with torch.device("meta"):
            model = get_peft_model(transformers.LlamaForCausalLM(SMOLLM2), LoraConfig(
                r=16, lora_alpha=32, target_modules=ALL_SEVEN, task_type="CAUSAL_LM"))
        theirs = shapes(get_peft_model_state_dict(model))
        self.assertEqual(len(theirs), 30 * 7 * 2)
        arguments = ["--shape", "smollm2-135m", "--seq", 8, "--steps", 1]
        run(*arguments, "--out", self.folder / "out")
        self.assertEqual(shapes(adapter_file(self.folder / "out/adapter")), theirs)
        made = self.folder / "made"
        model.peft_config["default"].save_pretrained(made)
        save_file({key: torch.zeros(shape) for key, shape in theirs.items()},
                  made / "adapter_model.safetensors")
        run(*arguments, "--adapter", made)


if __name__ == "__main__":
    unittest.main()
