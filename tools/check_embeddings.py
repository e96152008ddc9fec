#!/usr/bin/env python3
"""Embeddings of quire against hidden states of the transformers library.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch transformers
    /tmp/peers/bin/python tools/check_embeddings.py --quire build/quire --models ../shared/data/models

An optional check: nothing builds or tests with it. For every model directory in --models that transformers reads, and for every way of pooling, `quire serve --pooling`
answers POST /v1/embeddings; expected are last_hidden_state's last row, mean and first row, normalised, and cut to `dimensions` before. Then a copy of the first
directory says its pooling itself (modules.json), without normalising, and has two Dense stages behind it, in sentence-transformers' arithmetic (and, where that
is installed, in its own code). Ends with status 1 when a bound, derived where it is used, is broken.
"""
import base64
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import torch
import transformers
from safetensors.torch import save_file

import checks

POOLING = {"last": lambda h: h[-1], "mean": lambda h: h.mean(0), "cls": lambda h: h[0]}
# Both sides compute in f32, and differ by the order of sums of some hundred products through a few layers: 1e-5 of the largest number leaves f32 an order of
# magnitude, as in tools/check_peft.py.
BOUND = 1e-5


class Quire:
    def __init__(self, program, model, *flags):
        self.process = subprocess.Popen([program, "serve", "--model", model, "--port", "0", "--dtype", "f32", *flags], stderr=subprocess.PIPE, text=True)
        self.port = None
        for line in self.process.stderr:
            found = re.search(r"ready +http://[^:]*:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        if not self.port or not self.ready():
            sys.exit("quire serve did not start")

    def ready(self):
        for _ in range(1000):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz"):
                    return True
            except urllib.error.HTTPError:
                time.sleep(0.01)
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.process.stderr.close()

    def embed(self, **body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/embeddings", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as r:
            return [d["embedding"] for d in json.load(r)["data"]]


def hidden_of(path, inputs):
    """What leaves the last norm, [n_tokens, D] for each input; everything in f32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return [model.model(torch.tensor([ids])).last_hidden_state[0] for ids in inputs]


def unit(x):
    return x / x.norm()


def check(report, args, path, inputs):
    print(os.path.basename(path))
    hidden = hidden_of(path, inputs)
    cut = hidden[0].shape[1] // 3
    for name, pool in POOLING.items():
        with Quire(args.quire, path, "--pooling", name) as q:
            whole, short, packed = q.embed(input=inputs), q.embed(input=inputs, dimensions=cut), q.embed(input=inputs, encoding_format="base64")
        for ids, h, x, y, z in zip(inputs, hidden, whole, short, packed):
            report.compare(f"{name} of {len(ids)} tokens", x, unit(pool(h)), BOUND)
            report.compare(f"{name} of {len(ids)} tokens, {cut} dimensions", y, unit(pool(h)[:cut]), BOUND)
            if base64.b64decode(z) != struct.pack(f"<{len(x)}f", *x):
                report.failed = True
                print("  FAIL base64 and float are not the same numbers")
    return hidden


class Copy(tempfile.TemporaryDirectory):
    """A model's directory with stages behind it, of which the first says: mean, not normalised."""

    def __init__(self, model):
        super().__init__(prefix="quire-embeddings-")
        self.model = model

    def __enter__(self):
        self.path = os.path.join(super().__enter__(), "model")
        shutil.copytree(self.model, self.path)
        self.stages = []
        self.add("Transformer", "")
        self.add("Pooling", "1_Pooling", {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False})
        return self

    def add(self, kind, folder, config=None):
        self.stages.append({"idx": len(self.stages), "name": str(len(self.stages)), "path": folder, "type": f"sentence_transformers.models.{kind}"})
        with open(os.path.join(self.path, "modules.json"), "w", encoding="utf-8") as f:
            json.dump(self.stages, f)
        if config is not None:
            os.makedirs(os.path.join(self.path, folder), exist_ok=True)
            with open(os.path.join(self.path, folder, "config.json"), "w", encoding="utf-8") as f:
                json.dump(config, f)


def check_files(report, args, path, inputs, hidden):
    print(os.path.basename(path), "with modules.json: mean, not normalised")
    with Copy(path) as copy, Quire(args.quire, copy.path) as q:
        for ids, h, x in zip(inputs, hidden, q.embed(input=inputs)):
            report.compare(f"{len(ids)} tokens", x, h.mean(0), BOUND)


def dense_of(sizes, acts):
    """What sentence-transformers computes: act(linear(x)), one behind the other."""
    torch.manual_seed(2)
    linear = [torch.nn.Linear(i, o, bias=k == 0) for k, (i, o) in enumerate(zip(sizes, sizes[1:]))]
    return torch.nn.Sequential(*(torch.nn.Sequential(m, a) for m, a in zip(linear, acts))), linear


def check_dense(report, args, path, inputs, hidden):
    """As EmbeddingGemma has two: wider, and back."""
    d = hidden[0].shape[1]
    acts = torch.nn.Tanh(), torch.nn.Identity()
    stages, linear = dense_of((d, 4 * d, d - 3), acts)
    print(os.path.basename(path), f"with Dense stages from {d} to {4 * d} and to {d - 3}")
    with Copy(path) as copy, torch.no_grad():
        for k, (m, act) in enumerate(zip(linear, acts), 2):
            copy.add("Dense", f"{k}_Dense", {"in_features": m.in_features, "out_features": m.out_features, "bias": m.bias is not None,
                                             "activation_function": f"{type(act).__module__}.{type(act).__name__}"})
            save_file({f"linear.{n}": t.contiguous() for n, t in m.state_dict().items()}, os.path.join(copy.path, f"{k}_Dense", "model.safetensors"))
        copy.add("Normalize", "4_Normalize")
        with Quire(args.quire, copy.path) as q:
            whole, short = q.embed(input=inputs), q.embed(input=inputs, dimensions=d // 3)
        for ids, h, x, y in zip(inputs, hidden, whole, short):
            v = stages(h.mean(0))
            report.compare(f"{len(ids)} tokens", x, unit(v), BOUND)
            report.compare(f"{len(ids)} tokens, {d // 3} dimensions", y, unit(v[:d // 3]), BOUND)
        check_library(report, copy.path)


def check_library(report, path):
    """The library itself, where it is installed: its own reader of the same files, behind hidden states that are the same."""
    try:
        from sentence_transformers.sentence_transformer.modules import Dense
    except ImportError:
        print("  sentence-transformers is not installed: only its arithmetic was compared")
        return
    found = [Dense.load(os.path.join(path, f"{k}_Dense")) for k in (2, 3)]
    x = torch.randn(found[0].in_features, generator=torch.Generator().manual_seed(3))
    features = {"sentence_embedding": x}
    for stage in found:
        features = stage(features)
    mine = dense_of((found[0].in_features, found[0].out_features, found[1].out_features), (torch.nn.Tanh(), torch.nn.Identity()))[0](x)
    report.compare("the library's stages and those expected above", features["sentence_embedding"].detach(), mine.detach(), 0)


def main():
    args, report = checks.arguments(__doc__), checks.Report()
    torch.manual_seed(1)
    inputs = [torch.randint(3, 250, (n,)).tolist() for n in (1, 7, 100)]
    for i, path in enumerate(checks.models(args.models)):
        hidden = check(report, args, path, inputs)
        if i == 0:
            check_files(report, args, path, inputs, hidden)
            check_dense(report, args, path, inputs, hidden)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
