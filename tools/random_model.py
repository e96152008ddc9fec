#!/usr/bin/env python3
"""A model of random weights in the shape of a config.json (Llama, or Mixtral where it has experts), stored in any of the formats that people have, for
measurements of what has no file: python3's standard library only.

    tools/random_model.py CONFIG.json TYPE OUT [--embed TYPE]

TYPE is what matrices are stored as: a type of GGUF's makes a file, OUT.gguf; bf16, gptq, gptq-act (act-order), awq, fp8 (scales for blocks of 128 by 128), fp8-channel and fp8-tensor
make a Hugging Face directory. --embed is the
type of a GGUF file's embedding (and with it of a tied head), as TYPE unless given. The vocabulary has the 256 bytes and names for the rest.
"""
import argparse
import json
import os
import random
import struct

F32, STRING, U32, I32, F32_VALUE, ARRAY = 0, 8, 4, 5, 6, 9
FP8_BLOCK = 128
RANDOM = random.Random(20261122)  # the same model each time
# bytes of a block, its numbers, and where its f16 scales are with values that bring weights near 0.02
TYPES = {
    "Q4_0": (2, 18, 32, [(0, 0.004)]), "Q4_1": (3, 20, 32, [(0, 0.004), (2, -0.03)]), "Q5_0": (6, 22, 32, [(0, 0.002)]),
    "Q5_1": (7, 24, 32, [(0, 0.002), (2, -0.03)]), "Q8_0": (8, 34, 32, [(0, 0.00027)]), "Q2_K": (10, 84, 256, [(80, 0.001), (82, 0.0015)]),
    "Q3_K": (11, 110, 256, [(108, 0.0005)]),
    "Q4_K": (12, 144, 256, [(0, 0.0001), (2, 0.00075)]), "Q5_K": (13, 176, 256, [(0, 0.00005), (2, 0.00075)]), "Q6_K": (14, 210, 256, [(208, 1.5e-5)]),
    "IQ4_XS": (23, 136, 256, [(0, 1.5e-5)]),
}
SCHEMES = {
    "bf16": None,
    "gptq": {"quant_method": "gptq", "bits": 4, "desc_act": False, "sym": False},
    "gptq-act": {"quant_method": "gptq", "bits": 4, "desc_act": True, "sym": False},
    "awq": {"quant_method": "awq", "bits": 4, "zero_point": True, "version": "gemm"},
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [FP8_BLOCK, FP8_BLOCK]},
    "fp8-channel": {"quant_method": "fp8", "fmt": "e4m3"},
    "fp8-tensor": {"quant_method": "fp8", "fmt": "e4m3"},
}


# ---- what there is: (name in a directory, name in GGUF, outputs, inputs); None for inputs: a norm ----

def matrices(c):
    d, f, n_experts = c["hidden_size"], c["intermediate_size"], c.get("num_local_experts", 0)
    k = c.get("head_dim", d // c["num_attention_heads"])
    q, kv = k * c["num_attention_heads"], k * c["num_key_value_heads"]
    for i in range(c["num_hidden_layers"]):
        hf, gguf = f"model.layers.{i}", f"blk.{i}"
        for theirs, ours, n_out, n_in in (("q", "q", q, d), ("k", "k", kv, d), ("v", "v", kv, d), ("o", "output", d, q)):
            yield f"{hf}.self_attn.{theirs}_proj", f"{gguf}.attn_{ours}", n_out, n_in
        for theirs, ours, expert, n_out, n_in in (("gate", "gate", "w1", f, d), ("up", "up", "w3", f, d), ("down", "down", "w2", d, f)):
            for e in range(n_experts):
                yield f"{hf}.block_sparse_moe.experts.{e}.{expert}", f"{gguf}.ffn_{ours}_exps", n_out, n_in
            if n_experts == 0:
                yield f"{hf}.mlp.{theirs}_proj", f"{gguf}.ffn_{ours}", n_out, n_in


def vectors(c):
    yield "model.norm", "output_norm", c["hidden_size"]
    for i in range(c["num_hidden_layers"]):
        yield f"model.layers.{i}.input_layernorm", f"blk.{i}.attn_norm", c["hidden_size"]
        yield f"model.layers.{i}.post_attention_layernorm", f"blk.{i}.ffn_norm", c["hidden_size"]


def tables(c):
    yield "model.embed_tokens", "token_embd"
    if not c.get("tie_word_embeddings"):
        yield "lm_head", "output"


def routers(c):
    for i in range(c["num_hidden_layers"] if c.get("num_local_experts") else 0):
        yield f"model.layers.{i}.block_sparse_moe.gate", f"blk.{i}.ffn_gate_inp"


def tokens(n):
    """The characters that stand for bytes in byte-level vocabularies, then names."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(0x100 + hidden.index(b)) for b in range(256)] + [f"<{i}>" for i in range(256, n - 1)] + ["<|end|>"]


# ---- a GGUF file ----

def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, kind, value):
    body = text(value) if kind == STRING else struct.pack("<I" if kind == U32 else "<f", value)
    return text(name) + struct.pack("<I", kind) + body


def array(name, kind, bodies):
    return text(name) + struct.pack("<IIQ", ARRAY, kind, len(bodies)) + b"".join(bodies)


def noise(n):
    piece = 1 << 26  # what getrandbits takes at once
    return b"".join(RANDOM.randbytes(min(piece, n - at)) for at in range(0, n, piece))


def blocks(type_name, n):
    _, size, numbers, scales = TYPES[type_name]
    count = n // numbers
    data = bytearray(noise(count * size))
    for at, value in scales:
        for i, byte in enumerate(struct.pack("<e", value)):
            data[at + i::size] = bytes([byte]) * count
    return data


def keys_of(c):
    numbers = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
               "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
               "vocab_size": "vocab_size", "expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
    head_dim = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    names = tokens(c["vocab_size"])
    yield key("general.architecture", STRING, "llama")
    for name, field in numbers.items():
        if field in c:
            yield key("llama." + name, U32, c[field])
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        yield key("llama." + name, U32, head_dim)
    yield key("llama.attention.layer_norm_rms_epsilon", F32_VALUE, c["rms_norm_eps"])
    yield key("llama.rope.freq_base", F32_VALUE, c.get("rope_theta", 10000))
    yield key("tokenizer.ggml.model", STRING, "gpt2")
    yield key("tokenizer.ggml.pre", STRING, "gpt-2")
    yield key("tokenizer.ggml.eos_token_id", U32, len(names) - 1)
    yield array("tokenizer.ggml.tokens", STRING, [text(t) for t in names])
    yield array("tokenizer.ggml.token_type", I32, [struct.pack("<i", 3 if t == "<|end|>" else 1) for t in names])
    yield array("tokenizer.ggml.merges", STRING, [])


def gguf_tensors(c, matrix, embed):
    """(name, type or None for numbers of f32, dimensions), innermost first."""
    for _, name in tables(c):
        yield name, embed, (c["hidden_size"], c["vocab_size"])
    for _, name, n in vectors(c):
        yield name, None, (n,)
    for _, name in routers(c):
        yield name, None, (c["hidden_size"], c["num_local_experts"])
    experts = c.get("num_local_experts", 0)
    for name, (n_out, n_in) in {name: (n_out, n_in) for _, name, n_out, n_in in matrices(c)}.items():
        yield name, matrix, (n_in, n_out, experts) if name.endswith("_exps") else (n_in, n_out)


def write_gguf(path, c, matrix, embed=None):
    keys, listed, head, sizes, at = list(keys_of(c)), list(gguf_tensors(c, matrix, embed or matrix)), [], [], 0
    for name, kind, dims in listed:
        n = 1
        for dim in dims:
            n *= dim
        sizes.append((n, 4 * n if kind is None else n // TYPES[kind][2] * TYPES[kind][1]))
        head.append(text(name + ".weight") + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) +
                    struct.pack("<IQ", F32 if kind is None else TYPES[kind][0], at))
        at += (sizes[-1][1] + 31) // 32 * 32
    start = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(keys)) + b"".join(keys) + b"".join(head)
    with open(path, "wb") as f:
        f.write(start + bytes(-len(start) % 32))
        for (_, kind, _), (n, size) in zip(listed, sizes):
            f.write(struct.pack("<f", 1) * n if kind is None else blocks(kind, n))
            f.write(bytes(-size % 32))


# ---- a directory ----

SMALL = bytes([0x3c if b < 128 else 0xbc for b in range(256)])  # the upper byte of a bf16 near 0.02
FINITE = bytes([b & 0xfe if b & 0x7f == 0x7f else b for b in range(256)])  # E4M3 has no number there


def bf16(n):
    data = bytearray(noise(2 * n))
    data[1::2] = data[1::2].translate(SMALL)
    return data


def halves(n, value):
    return struct.pack("<e", value) * n


def group_of(c):
    """Inputs that share a scale in GPTQ and AWQ: the largest usual number that divides every matrix's."""
    return next(g for g in (128, 64, 32) if all(n_in % g == 0 for _, _, _, n_in in matrices(c)))


def stored(name, kind, n_out, n_in, group=0):
    """The tensors that make up a matrix: {name: (type, shape, bytes)}."""
    if kind.startswith("fp8"):
        shape = {"fp8": [-(-n_out // FP8_BLOCK), -(-n_in // FP8_BLOCK)], "fp8-channel": [n_out, 1], "fp8-tensor": [1, 1]}[kind]
        return {name + ".weight": ("F8_E4M3", [n_out, n_in], noise(n_out * n_in).translate(FINITE)),
                name + (".weight_scale_inv" if kind == "fp8" else ".weight_scale"): ("F32", shape, struct.pack("<f", 0.0002) * (shape[0] * shape[1]))}
    if kind in ("gptq", "gptq-act", "awq"):
        groups = n_in // group
        shape = [n_in // 8, n_out] if kind != "awq" else [n_in, n_out // 8]
        parts = {name + ".qweight": ("I32", shape, noise(n_in * n_out // 2)),
                 name + ".qzeros": ("I32", [groups, n_out // 8], noise(groups * n_out // 2)),
                 name + ".scales": ("F16", [groups, n_out], halves(groups * n_out, 0.003))}
        if kind != "awq":
            step = 1 if kind == "gptq" else next(k for k in (37, 41, 43) if n_in % k)
            parts[name + ".g_idx"] = ("I32", [n_in], struct.pack(f"<{n_in}i", *(i * step % n_in // group for i in range(n_in))))
        return parts
    return {name + ".weight": ("BF16", [n_out, n_in], bf16(n_out * n_in))}


def write_tokenizer(folder, n):
    names = tokens(n)
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": n - 1, "content": names[-1], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": split, "post_processor": None, "decoder": split,
                   "model": {"type": "BPE", "fuse_unk": False, "byte_fallback": False, "merges": [], "vocab": {t: i for i, t in enumerate(names)}}}, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"eos_token": names[-1]}, f)


def write_tensors(path, parts):
    header, at = {}, 0
    for name, (dtype, shape, data) in parts.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, _, data in parts.values():
            f.write(data)


def write_directory(folder, c, kind):
    os.makedirs(folder, exist_ok=True)
    parts = {}
    for name, _ in tables(c):
        parts.update(stored(name, "bf16", c["vocab_size"], c["hidden_size"]))
    for name, _ in routers(c):
        parts.update(stored(name, "bf16", c["num_local_experts"], c["hidden_size"]))
    for name, _, n in vectors(c):
        parts[name + ".weight"] = ("BF16", [n], b"\x80\x3f" * n)
    for name, _, n_out, n_in in matrices(c):
        parts.update(stored(name, kind, n_out, n_in, group_of(c)))
    write_tensors(os.path.join(folder, "model.safetensors"), parts)
    scheme = SCHEMES[kind]
    if kind in ("gptq", "gptq-act", "awq"):
        scheme = {**scheme, "group_size": group_of(c)}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**c, **({"quantization_config": scheme} if scheme else {})}, f)
    write_tokenizer(folder, c["vocab_size"])


def write_adapter(folder, c, rank):
    """A LoRA adapter for all matrices of a model without experts, as PEFT writes it."""
    os.makedirs(folder, exist_ok=True)
    parts, targets = {}, set()
    for name, _, n_out, n_in in matrices(c):
        parts[f"base_model.model.{name}.lora_A.weight"] = ("BF16", [rank, n_in], bf16(rank * n_in))
        parts[f"base_model.model.{name}.lora_B.weight"] = ("BF16", [n_out, rank], bf16(n_out * rank))
        targets.add(name.rsplit(".", 1)[1])
    write_tensors(os.path.join(folder, "adapter_model.safetensors"), parts)
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": sorted(targets)}, f)


def write(path, c, kind, embed=None):
    if kind in SCHEMES:
        write_directory(path, c, kind)
    else:
        write_gguf(path, c, kind, embed)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("config")
    p.add_argument("type", choices=[*TYPES, *SCHEMES])
    p.add_argument("out")
    p.add_argument("--embed", choices=TYPES)
    a = p.parse_args()
    with open(a.config, encoding="utf-8") as f:
        c = json.load(f)
    if c.get("rope_scaling"):
        print("left out: rope_scaling")
        c["rope_scaling"] = None
    write(a.out, c, a.type, a.embed)


if __name__ == "__main__":
    main()
