#!/usr/bin/env python3
"""Tokens that llama.cpp finds in texts with small vocabularies, for every name of a way to split that this program knows too.

Writes tests/tokenizer/gguf_keys (metadata of a GGUF file, without what a test puts before it) and tests/tokenizer/golden_gguf.h. Needs a built llama.cpp and what
tools/check_gguf.py needs:
    /tmp/peers/bin/python tools/golden/gguf_tokens.py LLAMA_CPP llama_says

Merges of the vocabulary of bytes were learned from texts that nothing split, so that each border of a word shows in the ids.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import sentencepiece
import tokenizers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import check_gguf

NAMES = ("gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat mpt olmo jais trillion granite-docling a.x-4.0 mellum modern-bert exaone4 smollm starcoder refact command-r codeshell exaone minerva-7b "
         "mellum2 default falcon llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe chatglm-bpe glm4 glm5 qwen2 stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez "
         "hunyuan solar-open grok-2 tekken gpt-4o llama4 kanana2 minimax-m2 deepseek-llm deepseek-coder deepseek-v3 hunyuan-dense joyai-llm poro-chat bloom gpt3-finnish viking seed-coder").split()
TEXTS = ("I'll say: it's 12345 o'clock\n\n\n\tWE'RE  here  ", "Grüße aus Köln, Привет мир! 你好世界 こんにちは 안녕 ١٢٣", "x = {'a': [1,2.50]}; // ok!!\r\nreturn x+1\n", "camelCaseWordsHTTPServer2Go ab12cd3456789",
         "-- ... ---- '''''' \"\"\" $5.00 <= 7%", "one,two.three!four?five (six)", "<s>user: hi<|end|> \nthere</s>", "")
STRING, ARRAY, I32, U32, F32 = 8, 9, 5, 4, 6
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
SPECIAL = ["<unk>", "<s>", "</s>", "<|end|>", "<|endoftext|>", "<|user|>"]


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def array(name, kind, items):
    return text(name) + struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(items)


def key(name, value):
    return text(name) + struct.pack("<I", STRING) + text(value)


def of_bytes():
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(list(TEXTS[:-1]) * 3 + check_gguf.corpus(), tokenizers.trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False))
    model = json.loads(t.to_str())["model"]
    names = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return 5, key("tokenizer.ggml.model", "gpt2") + array("tokenizer.ggml.tokens", STRING, [text(n) for n in names]) + \
        array("tokenizer.ggml.token_type", I32, [struct.pack("<i", CONTROL if n in SPECIAL else NORMAL) for n in names]) + \
        array("tokenizer.ggml.merges", STRING, [text(m) for m in merges]) + text("tokenizer.ggml.bos_token_id") + struct.pack("<II", U32, 1)


def of_pieces(folder):
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(list(TEXTS[:-1]) * 3 + check_gguf.corpus()), model_prefix=folder + "/p", vocab_size=430, model_type="bpe", byte_fallback=True,
                                             character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, allow_whitespace_only_pieces=True,
                                             unk_id=0, bos_id=1, eos_id=2, control_symbols=SPECIAL[3:])
    p = sentencepiece.SentencePieceProcessor(folder + "/p.model")
    n = p.vocab_size()
    kinds = [UNKNOWN if p.is_unknown(i) else CONTROL if p.is_control(i) else BYTE if p.is_byte(i) else NORMAL for i in range(n)]
    return 4, key("tokenizer.ggml.model", "llama") + array("tokenizer.ggml.tokens", STRING, [text(p.id_to_piece(i)) for i in range(n)]) + \
        array("tokenizer.ggml.token_type", I32, [struct.pack("<i", k) for k in kinds]) + array("tokenizer.ggml.scores", F32, [struct.pack("<f", p.get_score(i)) for i in range(n)])


def ids_of(says, folder, before, rest):
    """What llama.cpp finds in each text, with what it puts around; before and rest are numbers of keys and keys."""
    path = folder + "/v.gguf"
    with open(path, "wb") as f:
        f.write(struct.pack("<4sIQQ", b"GGUF", 3, 0, before[0] + rest[0]) + before[1] + rest[1])
    done = subprocess.run([says, path, "vocabulary"], input="".join(f"special {t.encode().hex()}\n" for t in TEXTS), capture_output=True, text=True, check=True)
    return tuple(done.stdout.splitlines())


def c_text(s):
    """Texts of C that follow each other."""
    parts = [c if " " <= c <= "~" and c not in '"\\' else "".join("\\%03o" % b for b in c.encode()) for c in s]
    lines = [""]
    for part in parts:
        if len(lines[-1]) > 120:
            lines.append("")
        lines[-1] += part
    return "\n    ".join(f'"{line}"' for line in lines)


def wrapped(ids):
    """Ids in texts of C that follow each other."""
    lines = [""]
    for word in ids.split():
        if len(lines[-1]) > 120:
            lines.append("")
        lines[-1] += word + " "
    return "\n       ".join(f'"{line.rstrip() if line is lines[-1] else line}"' for line in lines)


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "tokenizer")
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        bytes_, pieces = of_bytes(), of_pieces(folder)
        for name, keys in (("bytes", bytes_), ("pieces", pieces)):
            with open(f"{here}/gguf_keys/{name}.bin", "wb") as f:
                f.write(keys[1])
        for name in NAMES:
            before = (3, key("general.architecture", "llama") + key("general.name", "x") + key("tokenizer.ggml.pre", name))
            rows.setdefault(("bytes", "llama", ids_of(sys.argv[2], folder, before, bytes_)), []).append(name)
        for arch, model in (("llama", "x"), ("phi3", "phi3")):
            before = (3, key("general.architecture", arch) + key("general.name", model) + key("tokenizer.ggml.pre", "default"))
            rows[("pieces", arch, ids_of(sys.argv[2], folder, before, pieces))] = ["default"]
    with open(here + "/golden_gguf.h", "w", encoding="utf-8") as f:
        f.write(f"/* Made by tools/golden/gguf_tokens.py with llama.cpp's commit 0c1e570; see there. */\n#define GOLDEN_TEXTS {len(TEXTS)}\n#define GOLDEN_KEYS {pieces[0]}"
                " /* of pieces; those of bytes are one more */\n\nstatic const char *const texts[GOLDEN_TEXTS] = {\n" + "".join(f"    {c_text(t)},\n" for t in TEXTS) + "};\n\n"
                "static const struct golden_split {\n    const char *keys, *arch, *names;   /* keys: bytes or pieces; names of tokenizer.ggml.pre with spaces between */\n"
                "    const char *ids[GOLDEN_TEXTS];\n} golden[] = {\n")
        for (keys, arch, ids), names in rows.items():
            f.write(f'    {{"{keys}", "{arch}",\n     ' + "\n     ".join(f'"{" ".join(names[i:i + 10])}{" " if i + 10 < len(names) else ""}"' for i in range(0, len(names), 10)) + ",\n     {")
            f.write(",\n      ".join(wrapped(line) for line in ids) + "}},\n")
        f.write("};\n")


main()
