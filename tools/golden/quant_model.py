#!/usr/bin/env python3
"""A whole trained model with quantized weights, or with an int8 cache, in plain Python: stories260K's logits from the text of kernels.h, quant.h and
quant.py alone. Numbers are float64; what the text rounds (weights, inputs of products, keys and values) is rounded as it says. Prints
tests/model/golden_quant_model.h:   tools/golden/quant_model.py shared/data/models/stories260K > tests/model/golden_quant_model.h

Rounding is a step: a number a hair from the middle between two may fall to either side in f32. Prompts are taken at random until one has no such
number where integers are made (MARGIN), so what remains between the program and these numbers is f32's own error. On
tiles an int8 cache meets queries and probabilities of 16 bits: a case's slack is twice what that moves the logits by.
"""
import json
import math
import operator
import os
import random
import struct
import sys

import quant

LAYERS, HEADS, KV_HEADS, HEAD_DIM, EPS, THETA, VOCAB = 5, 8, 4, 8, 1e-5, 10000.0, 512
PROMPTS, PROMPT_TOKENS, SHOWN = 2, 3, 16
SLACK_MAX = 0.06  # prompts of more are passed over
MARGIN = 1e-4  # of the step between integers, where a row's largest is 127 steps: eight units in the last place of an f32 there
FORMATS = [("INT8", 8, 0), ("INT4", 4, 32)]


def dot(a, b):
    return sum(map(operator.mul, a, b))


def read_model(path):
    """Rows of every matrix, numbers of every vector; the file is F32."""
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        assert t["dtype"] == "F32", t
        begin, end = t["data_offsets"]
        x = list(struct.unpack("<%df" % ((end - begin) // 4), data[begin:end]))
        n = t["shape"][-1]
        out[name] = x if len(t["shape"]) == 1 else [x[i:i + n] for i in range(0, len(x), n)]
    return out


class NearTie(Exception):
    """An input that f32 may round to either side."""


class Format:
    """How a product is done: linear(name, x) is [w . x for each row w] in this format."""

    def __init__(self, model, fmt):
        self.model, self.fmt, self.matrix = model, fmt, {}

    def rows(self, name):
        if name not in self.matrix:
            _, width, group = self.fmt
            if name == "head":  # of 4 bits the head keeps 8
                width, group = 8, group if width == 8 else 0
            w = self.model["model.embed_tokens.weight" if name == "head" else name]
            self.matrix[name] = [quant.integers(row, width, group) for row in w]
        return self.matrix[name]

    def linear(self, name, x):
        if self.fmt is None:
            return [dot(w, x) for w in self.model["model.embed_tokens.weight" if name == "head" else name]]
        x = [quant.f32(v) for v in x]
        scale, inverse = quant.row_scale(x, 127.0)
        v = [t * inverse for t in x]
        if any(0.5 - abs(t - round(t)) < MARGIN for t in v):
            raise NearTie
        q = [round(t) for t in v]
        return [dot(p, q) * scale * a for p, a in self.rows(name)]

    def run(self, int8_cache, ids, tiles=False):
        return logits(self.model, self, int8_cache, ids, tiles)


def rms_norm(x, w):
    r = math.sqrt(dot(x, x) / len(x) + EPS)
    return [v / r * g for v, g in zip(x, w)]


def rotate(x, pos):
    half, out = HEAD_DIM // 2, list(x)
    for h in range(0, len(x), HEAD_DIM):
        for i in range(half):
            angle = pos * THETA ** (-2.0 * i / HEAD_DIM)
            a, b = x[h + i], x[h + half + i]
            out[h + i] = a * math.cos(angle) - b * math.sin(angle)
            out[h + half + i] = b * math.cos(angle) + a * math.sin(angle)
    return out


def cached(x, int8):
    """What the cache keeps of a token's keys or values, head by head."""
    if not int8:
        return x
    out = []
    for h in range(0, len(x), HEAD_DIM):
        head = [quant.f32(v) for v in x[h:h + HEAD_DIM]]
        scale, inverse = quant.row_scale(head, 127.0)
        v = [t * inverse for t in head]
        if any(0.5 - abs(t - round(t)) < MARGIN for t in v):
            raise NearTie
        out += [round(t) * scale for t in v]
    return out


def sixteen(x, step):
    """To 16 bits by the largest number."""
    unit = max(abs(v) for v in x) * step
    return [round(v / unit) * unit for v in x]


def attend(q, keys, values, tiles):
    out = []
    for h in range(HEADS):
        at, g = h * HEAD_DIM, h // (HEADS // KV_HEADS) * HEAD_DIM
        head = sixteen(q[at:at + HEAD_DIM], 2.0 ** -15) if tiles else q[at:at + HEAD_DIM]
        score = [dot(head, k[g:g + HEAD_DIM]) / math.sqrt(HEAD_DIM) for k in keys]
        most = max(score)
        e = [math.exp(s - most) for s in score]
        weight = sixteen(e, 2.0 ** -16) if tiles else e
        out += [sum(p * v[g + i] for p, v in zip(weight, values)) / sum(e) for i in range(HEAD_DIM)]
    return out


def logits(model, f, int8_cache, ids, tiles):
    """Of the last position."""
    keys, values = [[] for _ in range(LAYERS)], [[] for _ in range(LAYERS)]
    for pos, token in enumerate(ids):
        h = model["model.embed_tokens.weight"][token]
        for i in range(LAYERS):
            p = "model.layers.%d." % i
            x = rms_norm(h, model[p + "input_layernorm.weight"])
            q, k, v = (f.linear(p + "self_attn.%s_proj.weight" % c, x) for c in "qkv")
            keys[i].append(cached(rotate(k, pos), int8_cache))
            values[i].append(cached(v, int8_cache))
            o = f.linear(p + "self_attn.o_proj.weight", attend(rotate(q, pos), keys[i], values[i], tiles))
            h = [a + b for a, b in zip(h, o)]
            x = rms_norm(h, model[p + "post_attention_layernorm.weight"])
            gate, up = f.linear(p + "mlp.gate_proj.weight", x), f.linear(p + "mlp.up_proj.weight", x)
            d = f.linear(p + "mlp.down_proj.weight", [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)])
            h = [a + b for a, b in zip(h, d)]
    return f.linear("head", rms_norm(h, model["model.norm.weight"]))


def print_cases(name, f, int8_cache, rng):
    done = tried = 0
    while done < PROMPTS:
        ids = [rng.randrange(3, VOCAB) for _ in range(PROMPT_TOKENS)]
        tried += 1
        try:
            y = f.run(int8_cache, ids)
        except NearTie:
            continue
        try:
            others = [f.run(True, ids, tiles=True)] * 2 if int8_cache else []
        except NearTie:
            continue
        slack = sum(max(abs(a - b) for a, b in zip(y, other)) for other in others)
        if slack > SLACK_MAX:
            continue
        done += 1
        most = max(y)
        lse = most + math.log(sum(math.exp(v - most) for v in y))
        shown = y[done::VOCAB // SHOWN][:SHOWN]
        print("    {QR_QUANTIZE_%s, %s, {%s}, %.6f, %.7f, %d,\n     {%s}}," % (name, "true" if int8_cache else "false", ", ".join(map(str, ids)), slack, lse, done,
              ",\n      ".join(", ".join("%.6f" % v for v in shown[i:i + 8]) for i in range(0, SHOWN, 8))))
    print("%s: %d prompts tried" % (name, tried), file=sys.stderr)


def main():
    model = read_model(sys.argv[1])
    rng = random.Random(20261121)
    print("/* Made by tools/golden/quant_model.py from the text of kernels.h and quant.h; see there. */")
    print("#define GOLDEN_IDS %d\n#define GOLDEN_SHOWN %d\n#define GOLDEN_STEP %d\n" % (PROMPT_TOKENS, SHOWN, VOCAB // SHOWN))
    print("static const struct {\n    enum qr_quantize quantize;\n    bool int8_cache;\n    int32_t ids[GOLDEN_IDS];\n    double slack; /* what roundings near a tie may add */\n    double lse; /* of the last position */")
    print("    int32_t first; /* logits first, first + GOLDEN_STEP, ... */\n    double logit[GOLDEN_SHOWN];\n} golden[] = {")
    print_cases("NONE", Format(model, None), False, rng)
    for fmt in FORMATS:
        print_cases(fmt[0], Format(model, fmt), False, rng)
    print_cases("NONE", Format(model, None), True, rng)
    print_cases("INT8", Format(model, FORMATS[0]), True, rng)
    print("};")


main()
