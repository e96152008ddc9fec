#!/usr/bin/env python3
"""Small matrices in the layouts of quantized Hugging Face checkpoints, packed by the libraries that define them, and what these make of them again.

Prints tests/loader/golden_quantized.h. Needs PyTorch, transformers and compressed-tensors (2.15, 5.23 and 0.20 were used), and the unpacked sources of
auto-gptq 0.7.1 (its wheel) and autoawq 0.2.9, of which two files each are loaded:
    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch transformers compressed-tensors
    /tmp/golden/bin/pip download --no-deps auto-gptq==0.7.1 autoawq==0.2.9 -d /tmp/src && cd /tmp/src && unzip -q auto_gptq*.whl && tar xzf autoawq*.tar.gz
    /tmp/golden/bin/python tools/golden/quantized.py /tmp/src > tests/loader/golden_quantized.h
Scales are small integers times a power of two, so that every library's arithmetic is exact and numbers can be compared bit for bit: they are printed as integers,
in units of a power of two.
"""
import importlib.util
import json
import sys
import types

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

O, I, STEP = 32, 32, 3
TYPES = {torch.int32: "I32", torch.int64: "I64", torch.int8: "I8", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32",
         torch.float8_e4m3fn: "F8_E4M3"}
cases = []


def load(path, name, replaced=()):
    for other, members in replaced:
        parts = other.split(".")
        for n in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:n]), types.ModuleType(".".join(parts[:n])))
        for key, value in members.items():
            setattr(sys.modules[other], key, value)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def exact_scales(*shape):
    return torch.randint(1, 8, shape).float() / 256


def linear_of(weight, dtype):
    layer = torch.nn.Linear(I, O, bias=False)
    layer.weight.data = weight.to(dtype)
    return layer


def add(name, config, tensors, weight):
    unit = 17 if any(t.dtype == torch.float8_e4m3fn for t in tensors.values()) else 8
    cases.append((name, config, tensors, (weight.double() * 2 ** unit).round().long(), unit))
    assert (cases[-1][3].double() / 2 ** unit == weight.double()).all(), name


def gptq(source):
    torch.manual_seed(1)
    module = load(f"{source}/auto_gptq/nn_modules/qlinear/qlinear_cuda.py", "golden_gptq")
    for name, bits, group, order, v2 in (("gptq, groups of 8", 4, 8, False, False), ("gptq, act-order", 4, 4, True, False), ("gptq, one group", 4, -1, False, False),
                                         ("gptq, 8 bits", 8, 8, False, False), ("gptq_v2", 4, 8, False, True)):
        size = I if group < 0 else group
        n_groups, most = I // size, (1 << bits) - 1
        g_idx = torch.arange(I, dtype=torch.int32) // size
        if order:
            g_idx = g_idx[torch.randperm(I)]
        scales, zeros = exact_scales(O, n_groups), torch.randint(1, most + 1, (O, n_groups)).float()
        codes = torch.randint(0, most + 1, (O, I)).float()
        weight = scales[:, g_idx.long()] * (codes - zeros[:, g_idx.long()])
        q = module.QuantLinear(bits, group, I, O, False)
        q.pack(linear_of(weight, torch.float32), scales.clone(), zeros.clone(), g_idx.clone())
        zeros_stored = q.qzeros
        if v2:  # every zero one more; a one in each nibble, none of which is full, since zeros are at most 15 and less by one as stored
            zeros_stored = q.qzeros + 0x11111111
        tensors = {"qweight": q.qweight, "qzeros": zeros_stored, "scales": q.scales.half(), "g_idx": q.g_idx}
        add(name, dict(quant_method="gptq", bits=bits, group_size=group, desc_act=order, sym=False, **(dict(checkpoint_format="gptq_v2") if v2 else {})), tensors,
            weight)


def awq(source):
    torch.manual_seed(2)
    replaced = (("awq.utils.module", {"try_import": lambda n: (None, "")}), ("awq.utils.utils", {"get_best_device": lambda: "cpu"}))
    packing = load(f"{source}/autoawq-0.2.9/awq/utils/packing_utils.py", "awq.utils.packing_utils", replaced)
    module = load(f"{source}/autoawq-0.2.9/awq/modules/linear/gemm.py", "golden_awq")
    for group in (8,):
        scales, zeros = exact_scales(I // group, O), torch.randint(0, 16, (I // group, O)).float()
        codes = torch.randint(0, 16, (O, I)).float()
        g = torch.arange(I) // group
        weight = scales.T[:, g] * (codes - zeros.T[:, g])
        q = module.WQLinear_GEMM.from_linear(linear_of(weight, torch.float32), 4, group, scales=scales, zeros=zeros)
        again = packing.dequantize_gemm(q.qweight, q.qzeros, q.scales.float(), 4, group).T
        assert (again == weight).all()
        add(f"awq, groups of {group}", dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm"),
            {"qweight": q.qweight, "qzeros": q.qzeros, "scales": q.scales}, again)


def compressed():
    torch.manual_seed(3)
    rows = (("pack-quantized", dict(num_bits=4, strategy="group", group_size=8), torch.bfloat16), ("pack-quantized", dict(num_bits=4, strategy="channel"), torch.float16),
            ("pack-quantized", dict(num_bits=4, strategy="group", group_size=4, symmetric=False), torch.bfloat16),
            ("pack-quantized", dict(num_bits=8, strategy="channel"), torch.float32),
            ("int-quantized", dict(num_bits=8, strategy="channel"), torch.bfloat16), ("int-quantized", dict(num_bits=8, strategy="tensor"), torch.float32),
            ("int-quantized", dict(num_bits=8, strategy="channel", symmetric=False), torch.float32),
            ("float-quantized", dict(num_bits=8, type="float", strategy="channel"), torch.bfloat16),
            ("float-quantized", dict(num_bits=8, type="float", strategy="tensor"), torch.float32),
            ("float-quantized", dict(num_bits=8, type="float", strategy="block", block_structure=[16, 8]), torch.float32))
    for form, args, dtype in rows:
        weights = QuantizationArgs(**args)
        scheme = QuantizationScheme(targets=["Linear"], weights=weights)
        n_groups = I // args["group_size"] if "group_size" in args else 1
        shape = {"group": (O, n_groups), "channel": (O, 1), "tensor": (1,), "block": (O // 16, I // 8)}[args["strategy"]]
        scale = exact_scales(*shape).to(dtype)
        low, high = (-(1 << args["num_bits"] - 1), (1 << args["num_bits"] - 1) - 1)
        asymmetric = not args.get("symmetric", True)
        zero = torch.randint(low // 2, high // 2, shape).to(torch.int8) if asymmetric else None
        wide = scale.float().repeat_interleave(O // shape[0] if shape[0] < O else 1, 0) if len(shape) > 1 else scale.float().reshape(1, 1)
        wide = wide.repeat_interleave(I // wide.shape[1], 1)
        if weights.type == "float":
            codes = torch.randint(0, 256, (O, I)).to(torch.uint8)
            codes[(codes & 127) == 127] = 0
            weight = codes.view(torch.float8_e4m3fn).float() * wide
        else:
            codes = torch.randint(low, high + 1, (O, I)).float()
            weight = wide * (codes - (zero.float().repeat_interleave(I // shape[1], 1) if asymmetric else 0))
        state = {"weight": weight, "weight_scale": scale}
        if asymmetric:
            state["weight_zero_point"] = zero
        compressor = BaseCompressor.get_value_from_registry(form)
        packed = compressor.compress(state, scheme)
        again = compressor.decompress({k: v.float() if k == "weight_scale" else v for k, v in packed.items()}, scheme)["weight"]
        config = dict(quant_method="compressed-tensors", format=form, config_groups=dict(group_0=dict(targets=["Linear"], weights=json.loads(
            weights.model_dump_json(exclude_none=True)))), ignore=["lm_head"])
        add(f"{form}, {json.dumps(args)}".replace('"', "'"), config, packed, again)


def fp8():
    torch.manual_seed(4)
    codes = torch.randint(0, 256, (O, I)).to(torch.uint8)
    codes[(codes & 127) == 127] = 1
    scale = exact_scales(O // 16, I // 8)
    weight = codes.view(torch.float8_e4m3fn).float() * scale.repeat_interleave(16, 0).repeat_interleave(8, 1)
    add("fp8 in blocks", dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[16, 8]),
        {"weight": codes.view(torch.float8_e4m3fn), "weight_scale_inv": scale}, weight)


def c_text(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def wrapped(items, indent):
    lines, line = [], indent
    for item in items:
        if len(line) + len(item) + 1 > 158:
            lines.append(line.rstrip())
            line = indent
        line += item + ","
    return "\n".join(lines + [line.rstrip()])


def main():
    gptq(sys.argv[1])
    awq(sys.argv[1])
    compressed()
    fp8()
    print("/* golden_quantized.h - matrices packed by auto-gptq, autoawq and compressed-tensors. Made by tools/golden/quantized.py; do not edit. */")
    print(f"#define GOLDEN_O {O}\n#define GOLDEN_I {I}\n#define GOLDEN_STEP {STEP}\n#define GOLDEN_PARTS 5\n")
    print("struct golden_part {\n    const char *name, *type;\n    int32_t n_dims;\n    int64_t shape[2];\n    const uint32_t *words; /* its bytes, from the low ones up */\n};\n")
    print("struct golden_quantized {\n    const char *name, *config;\n    struct golden_part part[GOLDEN_PARTS];\n    const int32_t *weight; /* [O / STEP][I]: every STEPth row, in units of 2^-unit */\n    int32_t unit;\n};\n")
    rows = []
    for n, (name, config, tensors, weight, unit) in enumerate(cases):
        parts = []
        for key, t in tensors.items():
            raw = t.contiguous().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8).flatten().tolist()
            raw += [0] * (-len(raw) % 4)
            words = [f"0x{int.from_bytes(bytes(raw[i:i + 4]), 'little'):x}" for i in range(0, len(raw), 4)]
            print(f"static const uint32_t golden_{n}_{key}[] = {{\n{wrapped(words, '    ')}\n}};")
            shape = list(t.shape) + [0] * (2 - len(t.shape))
            parts.append(f"{{{c_text(key)}, {c_text(TYPES[t.dtype])}, {len(t.shape)}, {{{shape[0]}, {shape[1]}}}, golden_{n}_{key}}}")
        print(f"static const int32_t golden_{n}[] = {{\n{wrapped([str(x) for x in weight[::STEP].flatten().tolist()], '    ')}\n}};\n")
        text = json.dumps(config, separators=(",", ":"))
        pieces = [text[i:i + 110] for i in range(0, len(text), 110)]
        rows.append(f"    {{{c_text(name)},\n     " + "\n     ".join(c_text(p) for p in pieces) + ",\n     {" + ",\n      ".join(parts) + f"}}, golden_{n}, {unit}}},")
    print("static const struct golden_quantized golden_quantized[] = {\n" + "\n".join(rows) + "\n};")


main()
