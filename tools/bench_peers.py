#!/usr/bin/env python3
"""The same shapes through other engines and through quire, in turn, in one run; prints medians and ratios.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch transformers ctranslate2
    quire bench make-model --like smollm2-135m --out /tmp/m135
    /tmp/peers/bin/python tools/bench_peers.py --model /tmp/m135 --quire build/quire --prefill 512 --batch 1,32

An optional tool: nothing builds or tests with it. Peers: eager and compile are transformers' model in PyTorch (bf16, the
latter under torch.compile with a static cache), ct2 is CTranslate2 with int8 weights, llama is llama.cpp's llama-bench, if named with
--llama-bench and --gguf. A round measures every engine once, one after the other, so that what else happens on the machine
meets all of them; a ratio is the median of the rounds' ratios. Every engine computes the logits of the last position only and draws nothing.

Each engine is a process of its own that sleeps while another one is measured. quire is compared with eager, compile and llama in
bf16, and with ct2 in int8. A first torch.compile takes minutes; its code is kept in $TORCHINDUCTOR_CACHE_DIR, so run once with
--rounds 0 before the run that counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

# ---- the engines, each in its own process: a line of JSON in, a line of JSON out ----


class Torch:
    """transformers' own model and cache; `compiled` puts torch.compile around the call."""

    def __init__(self, model_dir, threads, compiled):
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.torch, self.caches, self.compiled = torch, transformers.cache_utils, compiled
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
        self.model.config.use_cache = True
        self.call = torch.compile(self.model.forward, dynamic=False) if compiled else self.model.forward
        self.name = f"torch {torch.__version__}, transformers {transformers.__version__}"

    def new_cache(self, n_tokens):
        if self.compiled:
            return self.caches.StaticCache(config=self.model.config, max_cache_len=n_tokens)
        return self.caches.DynamicCache(config=self.model.config)

    def step(self, batch, first, n, cache, call):
        ids = self.torch.randint(0, self.model.config.vocab_size, (batch, n))
        pos = self.torch.arange(first, first + n).unsqueeze(0).expand(batch, n)
        began = time.perf_counter()
        call(input_ids=ids, position_ids=pos, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - began

    def seconds(self, case):
        with self.torch.inference_mode():
            if case["what"] == "prefill":
                return self.step(1, 0, case["n"], self.new_cache(case["n"]), self.call)
            cache, first = self.new_cache(case["depth"] + case["steps"] + 1), case["depth"]
            self.step(case["batch"], 0, max(first, 1), cache, self.model.forward)
            return sum(self.step(case["batch"], max(first, 1) + i, 1, cache, self.call) for i in range(case["steps"]))


class CTranslate2:
    """Greedy generation. Decoding is timed as the difference to generating one token."""

    def __init__(self, model_dir, threads):
        import ctranslate2

        self.dir = tempfile.mkdtemp(prefix="bench-peers-")
        out = os.path.join(self.dir, "int8")
        ctranslate2.converters.TransformersConverter(model_dir, low_cpu_mem_usage=True).convert(out, quantization="int8")
        self.name_special_tokens(os.path.join(out, "config.json"))
        self.engine = ctranslate2.Generator(out, device="cpu", compute_type="int8", inter_threads=1, intra_threads=threads)
        with open(os.path.join(model_dir, "config.json"), encoding="utf-8") as f:
            self.vocab = json.load(f)["vocab_size"]
        self.name = f"ctranslate2 {ctranslate2.__version__}, int8"
        self.seed = 0

    @staticmethod
    def name_special_tokens(path):
        """A model of random weights has no beginning of text and no unknown token; the generator wants names for them."""
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        for key in ("bos_token", "eos_token", "unk_token"):
            config[key] = config.get(key) or "<|end|>"
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)

    def generate(self, batch, n_prompt, n_new):
        import random

        self.seed += 1
        rng = random.Random(self.seed)
        prompts = [[f"<{rng.randrange(256, self.vocab - 1)}>" for _ in range(n_prompt)] for _ in range(batch)]
        began = time.perf_counter()
        self.engine.generate_batch(prompts, max_length=n_new, min_length=n_new, sampling_topk=1, include_prompt_in_result=False, max_batch_size=0)
        return time.perf_counter() - began

    def seconds(self, case):
        if case["what"] == "prefill":
            return self.generate(1, case["n"], 1)
        n_prompt = max(case["depth"], 2)
        return self.generate(case["batch"], n_prompt, 1 + case["steps"]) - self.generate(case["batch"], n_prompt, 1)


def serve_engine(kind, model_dir, threads):
    """The other end of Peer: makes the engine, answers each case with its seconds."""
    answers, sys.stdout = sys.stdout, sys.stderr
    engine = CTranslate2(model_dir, threads) if kind == "ct2" else Torch(model_dir, threads, kind == "compile")
    print(json.dumps({"name": engine.name}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"seconds": engine.seconds(json.loads(line))}), file=answers, flush=True)


class Peer:
    """An engine of this file in a process of its own."""

    def __init__(self, kind, o):
        env = dict(os.environ, OMP_NUM_THREADS=str(o.threads), TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
        args = [sys.executable, os.path.abspath(__file__), "--engine", kind, "--model", o.model, "--threads", str(o.threads)]
        self.kind, self.process = kind, subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.name = self.read()["name"]

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench_peers: {self.kind} ended (see above)")
        return json.loads(line)

    def rate(self, case):
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        return tokens_of(case) / self.read()["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Quire:
    """quire bench throughput with one case and one measurement; opening the model is not part of it."""

    def __init__(self, o, quantize):
        self.o, self.quantize, self.kind = o, quantize, "quire int8" if quantize == "int8" else "quire"
        self.name = subprocess.run([o.quire, "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def rate(self, case):
        o = self.o
        args = [o.quire, "bench", "throughput", "--model", o.model, "--threads", str(o.threads), "--quantize", self.quantize, "--json"]
        args += ["--no-probe", "--repeats", "3", "--steps", str(case["steps"])]
        if case["what"] == "prefill":
            args += ["--prefill", str(case["n"]), "--batch", ""]
        else:
            args += ["--prefill", "", "--batch", str(case["batch"]), "--depth", str(case["depth"])]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench_peers: {' '.join(args)}: {done.stderr.strip()}")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return next(row["tok_s"] for row in rows if row["case"] == case["what"])

    def close(self):
        pass


class Llama:
    """llama-bench; batches above one need llama-batched-bench and are left out."""

    def __init__(self, o):
        self.o, self.kind, self.name = o, "llama", f"llama-bench {o.llama_bench}, {o.gguf}"

    def rate(self, case):
        if case["what"] == "decode" and case["batch"] != 1:
            return None
        n = ["-p", str(case["n"]), "-n", "0"] if case["what"] == "prefill" else ["-p", "0", "-n", str(case["steps"]), "-d", str(case["depth"])]
        args = [self.o.llama_bench, "-m", self.o.gguf, "-t", str(self.o.threads), "-r", "1", "-o", "json", *n]
        done = subprocess.run(args, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)[0]["avg_ts"]

    def close(self):
        pass


# ---- rounds and the table ----


def tokens_of(case):
    return case["n"] if case["what"] == "prefill" else case["batch"] * case["steps"]


def cases_of(o):
    for n in o.prefill:
        yield {"what": "prefill", "n": n, "steps": 1, "label": f"prefill {n}"}
    for depth in o.depth:
        for batch in o.batch:
            yield {"what": "decode", "batch": batch, "depth": depth, "steps": o.steps, "label": f"decode {batch} at {depth}"}


def measure(engines, case, rounds):
    """rates[kind][round], after one measurement that does not count (torch compiles in it)."""
    rates = {e.kind: [] for e in engines}
    for i in range(rounds + 1):
        for e in engines:
            rate = e.rate(case)
            if i > 0 and rate is not None:
                rates[e.kind].append(rate)
    return rates


def print_row(label, rates):
    for kind, values in rates.items():
        if not values or kind.startswith("quire"):
            if values:
                print(f"{label:18} {kind:11} {statistics.median(values):10.1f} tok/s", flush=True)
            continue
        ours = rates.get("quire int8" if kind == "ct2" else "quire") or rates["quire"]
        ratio = statistics.median(a / b for a, b in zip(ours, values))
        print(f"{label:18} {kind:11} {statistics.median(values):10.1f} tok/s   quire / {kind}: {ratio:.2f}", flush=True)


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", required=True, help="directory, as of quire bench make-model")
    p.add_argument("--quire", default="build/quire", help="the program")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--prefill", type=numbers, default=[512], help="prompt lengths, as 128,512")
    p.add_argument("--batch", type=numbers, default=[1, 32], help="sequences decoded at once")
    p.add_argument("--depth", type=numbers, default=[0], help="tokens in the cache of each before")
    p.add_argument("--steps", type=int, default=16, help="decode steps of a measurement")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--peers", default="eager,compile,ct2", help="of eager, compile, ct2; empty for none")
    p.add_argument("--llama-bench", help="llama.cpp's llama-bench")
    p.add_argument("--gguf", help="the model for it: the same shape, bf16")
    p.add_argument("--json", help="also write every rate to this file")
    p.add_argument("--engine", choices=["eager", "compile", "ct2"], help=argparse.SUPPRESS)
    return p.parse_args()


def main():
    o = options()
    if o.engine:
        return serve_engine(o.engine, o.model, o.threads)
    peers = [k for k in o.peers.split(",") if k]
    engines = [Quire(o, "none")] + ([Quire(o, "int8")] if "ct2" in peers else []) + [Peer(k, o) for k in peers]
    engines += [Llama(o)] if o.llama_bench and o.gguf else []
    for e in engines:
        print(f"{e.kind}: {e.name}")
    everything = {}
    for case in cases_of(o):
        everything[case["label"]] = measure(engines, case, o.rounds)
        print_row(case["label"], everything[case["label"]])
    for e in engines:
        e.close()
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump({"threads": o.threads, "model": o.model, "engines": {e.kind: e.name for e in engines}, "tok_s": everything}, f, indent=1)
    return None


if __name__ == "__main__":
    main()
