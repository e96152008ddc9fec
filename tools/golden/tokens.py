#!/usr/bin/env python3
"""Ids and texts of small tokenizers from Hugging Face's tokenizers (0.23.3): steps behind ByteLevel as Falcon has them, and added tokens that are found behind the
normalizers, as in Llama 1's files (`"normalized": true`). Vocabularies, merges and texts are our own.

    python3 -m venv V && V/bin/pip install tokenizers==0.23.3 && V/bin/python tools/golden/tokens.py

writes tests/tokenizer/golden_tokens.h. A text without its special tokens is what tokenizers gives for the ids without theirs: asked to leave them out, 0.23.3
leaves in those that are normalized (versions before it leave them out).
"""
import json
import os
import random

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SPLITS = {
    "falcon": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
               {"type": "Digits", "individual_digits": False},
               {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}],
    "two": [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "Punctuation", "behavior": "Isolated"}],
    "last": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
             {"type": "Split", "pattern": {"Regex": "\\p{N}+|Ġ"}, "behavior": "MergedWithPrevious", "invert": False}],
}
LEARNED = ["the year 2024 and 1000 of 100,000 things: 123 456 789. ", "don't!!! we'll... naïve café über 12345 ²³ ¼ ½ 日本 ", "x = [1, 22, 333]; // 4444 "]
SPLIT_TEXTS = ["the year 2024", "1234567 1 12 123 1234", "a1b22c333d4444", "²³¹¼½ x²³", "١٢٣٤٥ １２３", "日本123456語", "don't!!! we'll...", "  12  345\n\t6", "naïve café 100,000.5",
               "🎉1🎉22", "\"quotes\" — $5", "!?" * 30 + "7" * 60, ""]

MARK = "▁"
ADDED = [("<unk>", True, True), ("<s>", True, True), ("</s>", True, True), ("[PAD]", True, False), ("<|raw|>", False, True)]  # content, normalized, special
SYMBOLS = [t[0] for t in ADDED] + ["<0x0A>", "<0xC3>", "<0xA9>", MARK, *"abcdehlorstw<>/[]PAD"]
PAIRS = ["h e", "l l", "he ll", "hell o", MARK + " hello", MARK + " a", MARK + " b", "a b", "w o", MARK + " wo", MARK + " " + MARK]
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
STRIPPED = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                             {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
METASPACE = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": False}
MARKED = {"llama 1": (PREPEND, STRIPPED), "metaspace": (PREPEND, METASPACE), "no decoder": (PREPEND, None)}
MARKED_TEXTS = ["hello", "<s>", " <s>", "a<s>b", "a <s> b", "<s>hello</s>", "hello </s> a </s>", "▁<s>", "<s> <s><s>", "<unk>", "[PAD] a[PAD] b [PAD]", "a <|raw|> <s>", "<<s>>",
                "a\n</s>", "é ab </s>", "  <s>  ", "X </s>", ""]


def sections(**more):
    file = {"added_tokens": [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": n, "special": s}
                             for i, (c, n, s) in enumerate(ADDED if "normalizer" in more else [])], **more}
    return {k: v for k, v in file.items() if v}


def split_tokenizer(steps):
    more = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    t = Tokenizer.from_str(json.dumps({"version": "1.0", **sections(**more), "model": {"type": "BPE", "vocab": {}, "merges": []}}))
    t.train_from_iterator(LEARNED * 4, trainers.BpeTrainer(vocab_size=256 + 40, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    merges = [m if isinstance(m, str) else " ".join(m) for m in json.loads(t.to_str())["model"]["merges"]]
    return more, "", {}, merges


def byte_alphabet():
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]


def opened(more, symbols, model, merges):
    tokens = (symbols.split(" ") if symbols else byte_alphabet()) + [m.replace(" ", "") for m in merges]
    vocab = {}
    for token in tokens:
        vocab.setdefault(token, len(vocab))
    file = {"version": "1.0", **sections(**more), "model": {"type": "BPE", **model, "vocab": vocab, "merges": merges}}
    return Tokenizer.from_str(json.dumps(file))


def c_text(s):
    """Texts of C that follow each other."""
    parts = [c if " " <= c <= "~" and c not in '"\\?' else "".join("\\%03o" % b for b in c.encode()) if c not in '"\\' else "\\" + c for c in s]
    lines = [""]
    for part in parts:
        if len(lines[-1]) > 120:
            lines.append("")
        lines[-1] += part
    return "\n     ".join(f'"{line}"' for line in lines)


def numbers(ids):
    return c_text(" ".join(map(str, ids)))


def row(*parts):
    """Values of a struct; on lines of their own where one would be too long."""
    flat = ", ".join(parts)
    return "{" + (flat if len(flat.split("\n")[0]) < 140 and "\n" not in flat else ",\n       ".join(parts)) + "}"


def lists_of(t, texts, n_more):
    """Ids of the texts, and drawn ones among which every second is an added token's."""
    r = random.Random(1)
    drawn = [[r.randrange(len(ADDED)) if r.random() < .5 else r.randrange(len(ADDED), t.get_vocab_size()) for _ in range(r.randrange(1, 9))] for _ in range(n_more)]
    return [t.encode(s).ids for s in texts] + drawn


def golden(name, more, symbols, model, merges, texts, n_more):
    t = opened(more, symbols, model, merges)
    special = {i for i, added in t.get_added_tokens_decoder().items() if added.special}
    rows = [row(c_text(s), numbers(t.encode(s).ids)) for s in texts]
    lists = lists_of(t, texts, n_more)
    texts_of = [row(numbers(ids), *(c_text(t.decode(some, skip_special_tokens=False)) for some in (ids, [i for i in ids if i not in special])))
                for ids in (lists if n_more else [])]
    head = json.dumps(sections(**more), separators=(",", ":"))[1:-1]
    model = "".join(f'"{k}":{json.dumps(v)},' for k, v in model.items())
    return (f'    {{"{name}",\n     {c_text(head)},\n     {c_text(model)},\n     {c_text(symbols)},\n     {c_text(chr(10).join(merges))},\n     {{' + ",\n      ".join(rows)
            + "},\n     {" + ",\n      ".join(texts_of) + "}}")


def main():
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "tokenizer", "golden_tokens.h")
    rows = [golden(name, *split_tokenizer(steps), SPLIT_TEXTS, 0) for name, steps in SPLITS.items()]
    model = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    rows += [golden(name, {"normalizer": normalizer, "decoder": decoder}, " ".join(SYMBOLS), model, PAIRS, MARKED_TEXTS, 12)
             for name, (normalizer, decoder) in MARKED.items()]
    with open(out, "w", encoding="ascii") as f:
        f.write(f"""/* Made by tools/golden/tokens.py with Hugging Face's tokenizers {tokenizers.__version__}; see there. */
#define GOLDEN_ENCODED 18
#define GOLDEN_DECODED 30

static const struct golden_tokens {{
    const char *name, *sections, *model; /* members of a tokenizer.json and of its model, but for vocabulary and merges */
    const char *symbols;                 /* the vocabulary's first, with spaces between; "": the byte alphabet */
    const char *merges;                  /* a line each */
    struct {{
        const char *text, *ids;
    }} encoded[GOLDEN_ENCODED];
    struct {{
        const char *ids, *with, *without; /* special tokens */
    }} decoded[GOLDEN_DECODED];
}} golden[] = {{
""" + ",\n".join(rows) + "\n};\n")


if __name__ == "__main__":
    main()
