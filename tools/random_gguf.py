#!/usr/bin/env python3
"""A GGUF file of random weights in the shape of a model directory's config.json, for measurements of what has no file: python3's standard library only.

    tools/random_gguf.py CONFIG.json TYPE OUT.gguf [--embed TYPE]

TYPE is what matrices are stored as; --embed the embedding (and with it a tied head), as TYPE unless given. There is no vocabulary in it.
"""
import argparse
import json
import os
import struct

F32, STRING, U32, F32_VALUE = 0, 8, 4, 6
# bytes of a block, its numbers, and where its f16 scales are with values that bring weights near 0.02
TYPES = {
    "Q4_0": (2, 18, 32, [(0, 0.004)]), "Q4_1": (3, 20, 32, [(0, 0.004), (2, -0.03)]), "Q5_0": (6, 22, 32, [(0, 0.002)]), "Q8_0": (8, 34, 32, [(0, 0.00027)]),
    "Q4_K": (12, 144, 256, [(0, 0.0001), (2, 0.00075)]), "Q5_K": (13, 176, 256, [(0, 0.00005), (2, 0.00075)]), "Q6_K": (14, 210, 256, [(208, 1.5e-5)]),
    "IQ4_XS": (23, 136, 256, [(0, 1.5e-5)]),
}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, kind, value):
    body = text(value) if kind == STRING else struct.pack("<I" if kind == U32 else "<f", value)
    return text(name) + struct.pack("<I", kind) + body


def blocks(type_name, n):
    _, size, numbers, scales = TYPES[type_name]
    count = n // numbers
    data = bytearray(os.urandom(count * size))
    for at, value in scales:
        for i, byte in enumerate(struct.pack("<e", value)):
            data[at + i::size] = bytes([byte]) * count
    return data


def tensors(c, matrix, embed):
    d, f, layers = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
    k = c.get("head_dim", d // c["num_attention_heads"])
    q, kv = k * c["num_attention_heads"], k * c["num_key_value_heads"]
    yield "token_embd.weight", embed, (d, c["vocab_size"])
    yield "output_norm.weight", None, (d,)
    if not c.get("tie_word_embeddings"):
        yield "output.weight", embed, (d, c["vocab_size"])
    for i in range(layers):
        for name, n_in, n_out in (("attn_q", d, q), ("attn_k", d, kv), ("attn_v", d, kv), ("attn_output", q, d), ("ffn_gate", d, f), ("ffn_up", d, f),
                                  ("ffn_down", f, d)):
            yield f"blk.{i}.{name}.weight", matrix, (n_in, n_out)
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{name}.weight", None, (d,)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("config")
    p.add_argument("type", choices=TYPES)
    p.add_argument("out")
    p.add_argument("--embed", choices=TYPES)
    a = p.parse_args()
    with open(a.config, encoding="utf-8") as f:
        c = json.load(f)
    scaling = c.get("rope_scaling")
    if scaling:
        print("left out: rope_scaling")
    keys = [key("general.architecture", STRING, "llama")]
    numbers = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
               "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
               "vocab_size": "vocab_size"}
    keys += [key("llama." + name, U32, c[field]) for name, field in numbers.items()]
    head_dim = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    keys += [key("llama." + name, U32, head_dim) for name in ("attention.key_length", "attention.value_length", "rope.dimension_count")]
    keys += [key("llama.attention.layer_norm_rms_epsilon", F32_VALUE, c["rms_norm_eps"]), key("llama.rope.freq_base", F32_VALUE, c.get("rope_theta", 10000))]
    listed = list(tensors(c, a.type, a.embed or a.type))
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(keys)) + b"".join(keys)
    at = 0
    sizes = []
    for name, kind, dims in listed:
        n = 1
        for dim in dims:
            n *= dim
        size = 4 * n if kind is None else n // TYPES[kind][2] * TYPES[kind][1]
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", F32 if kind is None else TYPES[kind][0], at)
        sizes.append((n, size))
        at += (size + 31) // 32 * 32
    with open(a.out, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for (_, kind, _), (n, size) in zip(listed, sizes):
            f.write(struct.pack("<f", 1) * n if kind is None else blocks(kind, n))
            f.write(bytes(-size % 32))


if __name__ == "__main__":
    main()
