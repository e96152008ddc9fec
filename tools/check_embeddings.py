#!/usr/bin/env python3
"""Embeddings of quire against hidden states of the transformers library.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch transformers
    /tmp/peers/bin/python tools/check_embeddings.py --quire build/quire --models ../shared/data/models

An optional check: nothing builds or tests with it. For every model directory in --models that transformers reads, and for every way of pooling, `quire serve --pooling`
answers POST /v1/embeddings; expected are last_hidden_state's last row, mean and first row, normalised, and cut to `dimensions` before. Then a copy of the first
directory says its pooling itself (modules.json), without normalising. Ends with status 1 when a bound, derived where it is used, is broken.
"""
import argparse
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


class Report:
    def __init__(self):
        self.failed = False

    def compare(self, what, found, expected, bound=BOUND):
        """Largest difference, as a share of the largest number expected."""
        difference = float((torch.tensor(found, dtype=torch.float64) - expected.double()).abs().max() / expected.double().abs().max())
        self.failed |= not difference <= bound
        print(f"  {'ok  ' if difference <= bound else 'FAIL'} {what}: {difference:.2e}, expected at most {bound:.2e}")


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
            report.compare(f"{name} of {len(ids)} tokens", x, unit(pool(h)))
            report.compare(f"{name} of {len(ids)} tokens, {cut} dimensions", y, unit(pool(h)[:cut]))
            if base64.b64decode(z) != struct.pack(f"<{len(x)}f", *x):
                report.failed = True
                print("  FAIL base64 and float are not the same numbers")
    return hidden


def check_files(report, args, path, inputs, hidden):
    print(os.path.basename(path), "with modules.json: mean, not normalised")
    with tempfile.TemporaryDirectory(prefix="quire-embeddings-") as work:
        copy = os.path.join(work, "model")
        shutil.copytree(path, copy)
        os.mkdir(os.path.join(copy, "1_Pooling"))
        with open(os.path.join(copy, "modules.json"), "w", encoding="utf-8") as f:
            json.dump([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                       {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}], f)
        with open(os.path.join(copy, "1_Pooling", "config.json"), "w", encoding="utf-8") as f:
            json.dump({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, f)
        with Quire(args.quire, copy) as q:
            for ids, h, x in zip(inputs, hidden, q.embed(input=inputs)):
                report.compare(f"{len(ids)} tokens", x, h.mean(0))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--models", required=True, help="a directory of model directories with tokenizers")
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    report, first = Report(), True
    torch.manual_seed(1)
    inputs = [torch.randint(3, 250, (n,)).tolist() for n in (1, 7, 100)]
    for name in sorted(os.listdir(args.models)):
        path = os.path.abspath(os.path.join(args.models, name))
        if not all(os.path.exists(os.path.join(path, f)) for f in ("config.json", "model.safetensors", "tokenizer.json")):
            continue
        hidden = check(report, args, path, inputs)
        if first:
            check_files(report, args, path, inputs, hidden)
        first = False
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
