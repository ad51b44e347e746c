"""dict_to_jsonl.py on a small dictionary: every entry once, heads cut off, the rest held out."""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv.pop())
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def base64(number):
    text = DIGITS[number % 64]
    while number >= 64:
        number //= 64
        text = DIGITS[number % 64] + text
    return text


def run(folder, entries):
    """Returns exit code, training pairs and held-out pairs of [(index word, text)]."""
    text, index = b"", ""
    for word, entry in entries:
        entry = entry.encode()
        index += f"{word}\t{base64(len(text))}\t{base64(len(entry))}\n"
        text += entry
    (folder / "w.dict.dz").write_bytes(gzip.compress(text))
    (folder / "w.index").write_text(index, encoding="utf-8")
    outputs = [folder / "train.jsonl", folder / "eval.jsonl"]
    result = subprocess.run(
        [sys.executable, SCRIPT, folder / "w.dict.dz", folder / "w.index", *outputs],
        capture_output=True, check=False)
    pairs = [[json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
             if path.exists() else [] for path in outputs]
    return result.returncode, *pairs


class DictToJsonl(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def test_every_definition_goes_to_one_file(self):
        entries = [(f"word{i}", f"WORD{i}, n.  Meaning\n   number {i}.\n") for i in range(200)]
        code, train, held_out = run(self.path, entries + [("00-database-url", "nothing\n")])
        self.assertEqual((code, len(train), len(held_out)), (0, 160, 40))
        words = [pair["instruction"] for pair in train + held_out]
        self.assertEqual(sorted(words), sorted(f"Define the word: word{i}" for i in range(200)))
        for pair in train + held_out:
            number = pair["instruction"].removeprefix("Define the word: word")
            self.assertEqual(pair["response"], f"n. Meaning number {number}.")

    def test_heads_are_spelled_as_in_the_text(self):
        special = [("frypan", "FRY-PAN, n. A pan.", "fry-pan", "n. A pan."),
                   ("cui bono", "CUI BONO? [Latin] What good?", "cui bono", "[Latin] What good?"),
                   ("lld", "LL.D. A degree.", "lld", "LL.D. A degree."),
                   ("j", "J is a consonant.", "j", "is a consonant.")]
        filler = [(f"word{i}", f"WORD{i}, n. {i}") for i in range(60)]
        _, train, held_out = run(self.path, [entry[:2] for entry in special] + filler)
        found = {pair["instruction"]: pair["response"] for pair in train + held_out}
        for _, _, word, response in special:
            self.assertEqual(found.get(f"Define the word: {word}"), response)

    def test_too_few_definitions_are_refused(self):
        code, train, _ = run(self.path, [("a", "A, n. One.")])
        self.assertNotEqual(code, 0)
        self.assertEqual(train, [])


if __name__ == "__main__":
    unittest.main()
