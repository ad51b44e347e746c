#!/usr/bin/env python3
"""Turns a dictionary of Debian's dict packages into training pairs.

usage: dict_to_jsonl.py WORDS.dict.dz WORDS.index TRAIN.jsonl EVAL.jsonl

A dictd dictionary is a gzip file of text and an index of lines "word TAB offset TAB length", the
numbers in base 64. A definition becomes {"instruction": "Define the word: ...", "response": ...};
HELD_OUT of them, evenly spaced, go to EVAL.jsonl and to no other place. Nothing is left out: an old
dictionary holds dated and offensive entries.
"""
import gzip
import json
import re
import sys

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
HELD_OUT = 40


def number(text):
    value = 0
    for digit in text:
        value = value * 64 + DIGITS.index(digit)
    return value


def entries(dictionary, index):
    """Yields (word, definition), each definition once."""
    with gzip.open(dictionary, "rb") as file:
        text = file.read()
    seen = set()
    with open(index, encoding="utf-8") as file:
        for line in file:
            word, offset, length = line.rstrip("\n").split("\t")[:3]
            # Entries about the database itself are called 00-database-...
            if word.startswith("00") or (offset, length) in seen:
                continue
            seen.add((offset, length))
            start = number(offset)
            yield word, text[start:start + number(length)].decode("utf-8", "replace")


def pair(word, definition):
    """The entry opens with its head word in capitals; the index has that without hyphens, and at
    times misspelt."""
    body = re.sub(r"\s+", " ", definition).strip()
    head = re.match(r"([A-Z][A-Z'-]*(?: [A-Z'-]+)*[A-Z])[,.?]+ ", body)
    if head:
        word = head.group(1)
    else:
        head = re.match(re.escape(word) + r"\s*,?\s*", body, re.IGNORECASE)
    if head:
        body = body[head.end():]
    return {"instruction": f"Define the word: {word.lower()}", "response": body}


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    dictionary, index, train, evaluation = sys.argv[1:]
    pairs = [pair(word, text) for word, text in entries(dictionary, index)]
    pairs = [p for p in pairs if p["response"]]
    if len(pairs) <= HELD_OUT:
        sys.exit(f"{dictionary}: only {len(pairs)} definitions found")
    stride = len(pairs) // HELD_OUT
    held_out = set(range(stride // 2, stride * HELD_OUT, stride))
    for path, wanted in ((train, False), (evaluation, True)):
        with open(path, "w", encoding="utf-8") as file:
            for i, p in enumerate(pairs):
                if (i in held_out) == wanted:
                    file.write(json.dumps(p, ensure_ascii=False) + "\n")
    print(f"{len(pairs) - HELD_OUT} definitions to learn, {HELD_OUT} held out")


if __name__ == "__main__":
    main()
