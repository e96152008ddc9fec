#!/usr/bin/env python3
"""Adapters between quire and the PEFT library, both ways, compared by weights and logits.

    python3 -m venv /tmp/peft && /tmp/peft/bin/pip install torch transformers peft
    /tmp/peft/bin/python tools/check_peft.py --quire build/quire --models ../shared/data/models

An optional check: nothing builds or tests with it. For every model directory in --models that quire can train:
  quire -> PEFT  `quire train` makes adapters of all seven matrices of the layers; PEFT loads them onto the base model without a key missing or left over.
  PEFT -> quire  PEFT makes adapters, moves them by a few steps of AdamW, saves them; `quire lora merge` adds them to the base model.
  PEFT -> quire  likewise with rank-stabilized scales, a rank and an alpha of some modules' own.
Each time four models must agree: PEFT's with the adapters beside the matrices, PEFT's after merge_and_unload(), the directory that `quire lora merge`
wrote, read by transformers (weights) and scored by quire (logits), and quire's with the adapters beside the matrices as it serves them. Bounds are derived at the places where they are used. Ends with status 1 when one is broken.
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

import peft
import torch
import transformers

import checks

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RANK, ALPHA = 4, 8
TEXT = "\n\n".join(f"The cat number {i} sat on the mat and looked at {i + 1} mice." for i in range(150))


def quire(args, *command, stdin=None):
    p = subprocess.run([args.quire, *command], input=stdin, capture_output=True, text=True, check=False)
    if p.returncode:
        sys.exit(f"quire {' '.join(command)}: status {p.returncode}\n{p.stdout[-2000:]}{p.stderr}")
    return p.stdout


def load(path):
    """The model in f32, whatever it is stored as: both sides then compute with the same numbers."""
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def places(ids):
    """quire prints the logits behind the last token: of these beginnings of the text."""
    return range(len(ids) % 7 + 1, len(ids) + 1, 7)


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0][[n - 1 for n in places(ids)]]


def logits_served(args, path, ids, *flags):
    lines = "".join(json.dumps({"ids": ids[:n]}) + "\n" for n in places(ids))
    out = quire(args, "score", "--model", path, "--dtype", "f32", "--logits", *flags, stdin=lines)
    return torch.tensor([json.loads(line)["logits"] for line in out.splitlines()], dtype=torch.float32)


def compare(report, args, base, adapter, merged, ids):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        beside = peft.PeftModel.from_pretrained(load(base), adapter)
    told = [str(w.message) for w in seen if "key" in str(w.message).lower()]
    if told:
        report.failed = True
        print("  FAIL PEFT about keys:", *told)
    served = logits_served(args, base, ids, "--lora", adapter)
    mine, moved = load(merged), logits_of(load(base), ids) - logits_of(beside, ids)
    if float(moved.abs().max()) < 1e-3:
        report.failed = True
        print("  FAIL the adapters change nothing: nothing is compared")
    apart, scored = logits_of(beside, ids), logits_served(args, merged, ids)
    unloaded = beside.merge_and_unload()
    theirs = dict(unloaded.state_dict())
    # Either side rounds each of RANK products and sums and the last sum to f32, and then, where the base is bf16, the merged matrix once to bf16; PEFT,
    # which was given the base in f32, does not. bf16 has 8 significant bits: to nearest it errs by 2^-8 of the power of two below a weight at most.
    stored = json.load(open(os.path.join(base, "config.json"), encoding="utf-8"))
    is_bf16 = (stored.get("dtype") or stored.get("torch_dtype")) == "bfloat16"
    weight_bound = (RANK + 2) * 2.0 ** -24 + (2.0 ** -8 if is_bf16 else 0)
    worst = max(mine.state_dict().items(), key=lambda kv: float((kv[1] - theirs[kv[0]]).abs().max() / kv[1].abs().max().clamp_min(1e-30)))
    report.compare(f"weights merged by quire and by PEFT (worst: {worst[0]})", worst[1], theirs[worst[0]], weight_bound)
    # Logits: sums of some hundred products in another order through a few layers: 1e-5 of the largest leaves f32 an order of magnitude. Rounding of weights
    # to bf16, which has errors of either sign, moves them by some 2^-8; five times that is left.
    report.compare("logits of quire's merged model, served by quire and computed by transformers", scored, logits_of(mine, ids), 1e-5)
    report.compare("logits with PEFT's merge_and_unload and with adapters beside", logits_of(unloaded, ids), apart, 1e-5)
    report.compare("logits of quire's merged model and of PEFT's adapters beside", scored, apart, 2e-2 if is_bf16 else 1e-5)
    # Computing in f32 both sides have the same numbers beside each other, whatever the base is stored as.
    report.compare("logits of adapters beside the matrices, in quire and in PEFT", served, apart, 1e-5)


def train_with_quire(args, base, data, out):
    config = os.path.join(out, "run.yaml")
    stored = json.load(open(os.path.join(base, "config.json"), encoding="utf-8"))
    dtype = "bf16" if (stored.get("dtype") or stored.get("torch_dtype")) == "bfloat16" else "f32"
    with open(config, "w", encoding="utf-8") as f:
        f.write(f"model: {{from: {base}}}\ndata: {{train: {data}, sequence: 64}}\nbatch: {{tokens: 256}}\nsteps: 10\neval: {{every: 0}}\n"
                f"compute: {{dtype: {dtype}}}\noptimizer: {{lr: 0.01, warmup: 0}}\nlora: {{rank: {RANK}, alpha: {ALPHA}, targets: {json.dumps(TARGETS)}}}\n"
                f"save: {{out: {out}/run}}\n")
    quire(args, "train", config)
    return os.path.join(out, "run", "adapter")


def train_with_peft(base, ids, out, **more):
    torch.manual_seed(1)
    model = peft.get_peft_model(load(base), peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, task_type="CAUSAL_LM", **more))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    batch = torch.tensor([ids])
    for _ in range(10):
        optimizer.zero_grad()
        model(batch, labels=batch).loss.backward()
        optimizer.step()
    model.save_pretrained(out)


def check(report, args, base, work):
    print(os.path.basename(base))
    text, data = os.path.join(work, "text.txt"), os.path.join(work, "data")
    with open(text, "w", encoding="utf-8") as f:
        f.write(TEXT)
    quire(args, "data", "prepare", "--model", base, "--out", data, "--separator", "", text)
    ids = json.loads(quire(args, "score", "--model", base, stdin=json.dumps({"prompt": TEXT[:200]}) + "\n"))["ids"]
    theirs, merged = os.path.join(work, "adapter-of-peft"), [os.path.join(work, f"merged-{i}") for i in range(3)]
    print(" adapters made by quire train, loaded by PEFT")
    mine = train_with_quire(args, base, data, work)
    quire(args, "lora", "merge", base, mine, merged[0])
    compare(report, args, base, mine, merged[0], ids)
    print(" adapters made by PEFT, merged by quire")
    train_with_peft(base, ids, theirs)
    quire(args, "lora", "merge", base, theirs, merged[1])
    compare(report, args, base, theirs, merged[1], ids)
    print(" the same with use_rslora, rank_pattern and alpha_pattern")
    train_with_peft(base, ids, theirs, use_rslora=True, rank_pattern={"q_proj": 2, "mlp.up_proj": 7}, alpha_pattern={"v_proj": 3, "layers.0.mlp.up_proj": 5})
    quire(args, "lora", "merge", base, theirs, merged[2])
    compare(report, args, base, theirs, merged[2], ids)


def main():
    args, report = checks.arguments(__doc__, peft), checks.Report()
    warnings.filterwarnings("ignore", category=FutureWarning)
    for base in checks.models(args.models):
        with tempfile.TemporaryDirectory(prefix="quire-peft-") as work:
            check(report, args, base, work)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
