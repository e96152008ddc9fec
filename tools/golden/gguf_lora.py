#!/usr/bin/env python3
"""Tiny LoRA adapters as llama.cpp's own converter writes them from PEFT's form, and the logits that llama.cpp computes with them.

Writes tests/model/golden_gguf_lora.h: for some of the models of gguf.py (whose files are there already) an adapter in both forms (tests/model/gguf/lora), and llama.cpp's logits behind two positions. Needs what
gguf.py needs, and tools/peers/llama_says.c beside it:
    /tmp/peers/bin/python tools/golden/gguf_lora.py LLAMA_CPP LLAMA_SAYS

llama.cpp rounds activations to the type of the matrix that they meet, so it is given the same numbers in F32: the models' weights are of their files' types, and an adapter's are codes of 8 bits
of one scale, which every type of the converter's holds exactly. transformers, in double with W + alpha / r B A in place of W, has to agree with it.
"""
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import check_gguf
import safetensors.torch
import torch
import transformers

STEP = 2.0 ** -12
BOUND = 2e-5  # f32 against double, logits of size 1 to 3

# model of gguf.py, rank, alpha, type of the adapter's file, which matrices ("": all of the layers)
ADAPTERS = (
    ("llama", 4, 64.0, "f32", ("",)),
    ("granite", 32, 20480.0, "q8_0", ("q_proj", "k_proj")),
    ("qwen2", 3, 60.0, "f16", ("",)),
    ("qwen3", 2, 50.0, "bf16", ("q_proj", "k_proj", "down_proj")),
    ("stablelm", 1, 40.0, "f32", ("q_proj", "o_proj", "up_proj")),
)


def models():
    spec = importlib.util.spec_from_file_location("golden_gguf", HERE / "gguf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def codes(r, rows, cols):
    """Numbers of which each row's largest is 127 steps."""
    t = torch.tensor([[r.randint(-127, 127) for _ in range(cols)] for _ in range(rows)], dtype=torch.float32)
    t[:, r.randrange(cols)] = 127
    return t * STEP


def adapt(model, where, rank, alpha, wanted):
    """PEFT's directory, and the model with its sums."""
    r, tensors = random.Random(rank), {}
    for name, module in model.named_modules():
        if ".layers." not in name or getattr(module, "weight", None) is None or module.weight.dim() != 2 or not any(w in name for w in wanted):
            continue
        n_out, n_in = module.weight.shape
        a, b = codes(r, rank, n_in), codes(r, n_out, rank)
        tensors[f"base_model.model.{name}.lora_A.weight"], tensors[f"base_model.model.{name}.lora_B.weight"] = a, b
        with torch.no_grad():
            module.weight += alpha / rank * (b.double() @ a.double())
    os.mkdir(where)
    safetensors.torch.save_file(tensors, os.path.join(where, "adapter_model.safetensors"))
    with open(os.path.join(where, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": sorted({n.split(".")[-3] for n in tensors})}, f)


def with_vocab_size(llama, n):
    """llama.cpp reads a file without a vocabulary where a key says its size, which the converter of some families writes (0) and that of others does not."""
    def put(writer, model):
        PUT_MODEL(writer, model)
        if n:
            writer.add_vocab_size(n)
    llama.gguf.GGUFWriter.add_tokenizer_model = put


def convert(llama_cpp, base, adapter, out, kind):
    done = subprocess.run([sys.executable, os.path.join(llama_cpp, "convert_lora_to_gguf.py"), "--base", base, "--outtype", kind, "--outfile", out, adapter], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def said(says, file, adapter, prompts):
    done = subprocess.run([says, file, "64", *([adapter] if adapter else [])], input="".join("logits " + " ".join(map(str, p)) + "\n" for p in prompts), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return torch.tensor([[float(x) for x in line.split()] for line in done.stdout.splitlines()], dtype=torch.float64)


def make(llama_cpp, says, golden, llama, row, folder):
    name, rank, alpha, kind, wanted = row
    k = [f[0] for f in golden.FILES].index(name)
    _, cls, more, base_kind, _ = golden.FILES[k]
    where = os.path.join(folder, name)
    os.mkdir(where)
    model = check_gguf.saved(cls, {**golden.SMALL, **more}, k, where, base_kind)
    with open(os.path.join(where, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"model": {"vocab": {str(i): i for i in range(golden.SMALL["vocab_size"])}}, "added_tokens": []}, f)
    adapter, base, plain, file = (os.path.join(folder, s) for s in ("adapter", "base.gguf", "plain.gguf", "adapter.gguf"))
    with_vocab_size(llama, golden.SMALL["vocab_size"] if name not in ("llama", "granite") else 0)
    llama.convert(where, base, "F32", {}, vocabulary=False)
    adapt(model, adapter, rank, alpha, wanted)
    convert(llama_cpp, where, adapter, plain, "f32")
    convert(llama_cpp, where, adapter, file, kind)
    ids = golden.ids_of(k)
    prompts = [ids[:golden.IDS // 2 + 1], ids]
    got, bare = said(says, base, plain, prompts), said(says, base, None, prompts)
    with torch.no_grad():
        want = model(torch.tensor([ids]), use_cache=False).logits[0]
    want = want[[golden.IDS // 2, golden.IDS - 1]][:, :got.shape[1]]
    off = float((got - want).abs().max())
    print(name, "llama.cpp and transformers differ by", off, "the adapter makes", float((got - bare).abs().max()), file=sys.stderr)
    assert off < BOUND and float((got - bare).abs().max()) > 0.02, name
    to = HERE.parent.parent / "tests" / "model" / "gguf" / "lora" / name
    to.mkdir(parents=True, exist_ok=True)
    for path in (file, os.path.join(adapter, "adapter_config.json"), os.path.join(adapter, "adapter_model.safetensors")):
        shutil.copy(path, to)
    return "    {\"%s\",\n     {{%s},\n      {%s}}},\n" % (name, golden.packed(got[0].tolist()), golden.packed(got[1].tolist()))


def main():
    llama_cpp, says = sys.argv[1:3]
    golden = models()
    llama = check_gguf.Llama(llama_cpp, says)
    global PUT_MODEL
    PUT_MODEL = llama.gguf.GGUFWriter.add_tokenizer_model
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    rows = []
    for row in ADAPTERS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(make(llama_cpp, says, golden, llama, row, folder))
    with open(HERE.parent.parent / "tests" / "model" / "golden_gguf_lora.h", "w", encoding="utf-8") as f:
        f.write("/* Made by tools/golden/gguf_lora.py with llama.cpp; see there. llama.cpp's logits with the adapters of tests/model/gguf/lora. */\n")
        f.write("static const struct golden_lora {\n    const char *model; /* of tests/model/gguf, and the adapter's directory there, in both forms: lora/MODEL */\n"
                "    double logit[2][GOLDEN_VOCAB]; /* behind positions GOLDEN_IDS / 2 and GOLDEN_IDS - 1 */\n} golden_lora[] = {\n" + "".join(rows) + "};\n")


if __name__ == "__main__":
    main()
