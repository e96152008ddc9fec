#!/usr/bin/env python3
"""gpu_results.py OUT... - the results of tools/gpu.sh, one folder or several, as the Markdown tables of docs/performance.md.
gpu_results.py --take OUT STEP FILE - called by gpu.sh behind each step: FILE's JSON lines go to OUT/results.jsonl with the step's name; prints a line for each thing
that fell back to something slower: its name, a tab, and what was said."""
import json
import os
import re
import sys

# Lines that say that something slower does the work, and the steps whose lines count: not those that switch it off themselves.
FELL_BACK = (
    ('attention', re.compile(r'wgmma attention of heads of \d+ (?:differs|is not tried).*|wgmma attention failed its first run.*'), ''),
    ('attention', re.compile(r'attention: no wgmma kernel has run'), r'kern-attention$'),
    ('fp8-products', re.compile(r'FP8 falls back to own kernels.*'), ''),
    ('same-bits', re.compile(r"no cuBLASLt algorithm has own's bits.*"), r'kern-linear$'),
    ('packed-program', re.compile(r'the packed program is of other sources.*'), ''),
)
OWN_WAYS = re.compile(r'ablations|.*-mma$|profile-')

# What is wanted of one H200: step, what a row must have, what counts, its unit and goal; a case with `torch` has a counterpart there.
TOKENS, US = 'tok/s', 'us'
GOALS = (
    ('Llama-3.1-8B bf16, one sequence', 'throughput-8b', {'case': 'decode', 'batch': 1, 'depth': 0}, 'tok_s', 1, TOKENS, 240),
    ('Llama-3.1-8B bf16, one sequence, of bandwidth', 'throughput-8b', {'case': 'decode', 'batch': 1, 'depth': 0}, 'share', 100, '%', 82),
    ('Llama-3.1-8B bf16, prompt of 4096', 'throughput-8b', {'case': 'prefill', 'depth': 0}, 'tok_s', 1, TOKENS, 37000),
    ('Llama-3.2-1B bf16, one sequence, of bandwidth', 'throughput-1b', {'case': 'decode', 'batch': 1, 'depth': 0}, 'share', 100, '%', 60),
    ('attention, 64 sequences at 4096', 'kern-attention', {'case': 'attention 64 seqs x 1 rows, ctx 4096, 32/8 x 128'}, 'gb_s', 1, 'GB/s', 3600),
    ('attention, prompt of 4096', 'kern-attention', {'case': 'attention 1 seqs x 4096 rows, ctx 4096, 32/8 x 128'}, 'gflop_s', 1e-3, 'TFLOP/s', 500),
    ('attention, prompt of 16384', 'kern-attention', {'case': 'attention 1 seqs x 16384 rows, ctx 16384, 32/8 x 128'}, 'gflop_s', 1e-3, 'TFLOP/s', 570),
    ('the same by mma.sync', 'kern-attention-mma', {'case': 'attention 1 seqs x 16384 rows, ctx 16384, 32/8 x 128'}, 'gflop_s', 1e-3, 'TFLOP/s', 300),
    ('RMSNorm', 'kern-rows', {'case': 'rms_norm 8192 x 4096'}, 'gb_s', 1, 'GB/s', 3500),
    ('SwiGLU', 'kern-rows', {'case': 'glu 8192 x 14336'}, 'gb_s', 1, 'GB/s', 3500),
    ('RoPE', 'kern-rows', {'case': 'rope 8192 x 32 heads of 128'}, 'gb_s', 1, 'GB/s', 3500),
    ('RoPE, backward', 'kern-rows', {'case': 'rope back 8192 x 32 heads of 128'}, 'gb_s', 1, 'GB/s', 3500),
    ('RMSNorm, backward', 'kern-rows', {'case': 'rms_norm back 8192 x 2048'}, 'gb_s', 1, 'GB/s', 3500),
    ('Qwen3-8B, 256 x 1024 + 1024, offline', 'offline-qwen3-8b', {'case': 'sequences'}, 'tok_s', 1, TOKENS, None),
    ('host, a step of these', 'offline-qwen3-8b', {'case': 'sequences'}, 'host_us_per_step', 1, US, 50),
    ('GPU without work meanwhile, at most', 'offline-qwen3-8b', {'case': 'sequences'}, 'device_idle_share', 100, '%', 1),
    ('training, 0.5B', 'train-0.5b', {}, 'tokens_per_s', 1, TOKENS, 165000),
    ('training, 1.5B', 'train-1.5b', {}, 'tokens_per_s', 1, TOKENS, 65000),
)
LESS_IS_BETTER = {'host_us_per_step', 'device_idle_share'}
# PyTorch's row for one of ours: steps, and what names the row there.
PEERS = (('throughput-1b', {'case': 'prefill', 'depth': 0}, 'torch-prompt', {'case': 'prefill'}, 'tok_s'),
         ('throughput-1b', {'case': 'decode', 'batch': 1, 'depth': 1024}, 'torch-decode', {'case': 'decode'}, 'tok_s'),
         ('train-0.5b', {}, 'torch-train', {'case': 'train 0.5b, autocast'}, 'tokens_per_s'),
         ('train-0.5b', {}, 'torch-train', {'case': 'train 0.5b, bf16'}, 'tokens_per_s'),
         ('train-1.5b', {}, 'torch-train', {'case': 'train 1.5b, autocast'}, 'tokens_per_s'),
         ('train-1.5b', {}, 'torch-train', {'case': 'train 1.5b, bf16'}, 'tokens_per_s'))


# ---- behind a step ----

def take(out, step, path):
    with open(path, encoding='utf-8', errors='replace') as f:
        text = f.read()
    rows = []
    for line in text.split('\n'):
        if line.startswith('{'):
            try:
                rows.append({'step': step, **json.loads(line)})
            except ValueError:
                pass  # cut off, as its step was
    with open(os.path.join(out, 'results.jsonl'), 'a', encoding='utf-8') as f:
        f.writelines(json.dumps(row) + '\n' for row in rows)
    for name, why in sorted(fell_back(step, text, rows)):
        print(f'{name}\t{why[:200]}')


def fell_back(step, text, rows):
    """Pairs of a name and what was said; a run's row "ways" says it in numbers."""
    if OWN_WAYS.match(step):
        return set()
    found = {(name, line) for name, said, steps in FELL_BACK if re.match(steps, step) for line in said.findall(text)}
    for r in (r for r in rows if r.get('case') == 'ways'):
        if r['fp8_own']:
            found.add(('fp8-products', f'{r["fp8_own"]} of {r["fp8"]} products of many rows by our own kernels'))
        if r['bf16_unlike'] and step == 'throughput-8b':
            found.add(('same-bits', f'{r["bf16_unlike"]} of {r["bf16_kinds"]} kinds of products: no algorithm of cuBLASLt has the bits of ours; --deterministic is slower'))
        if not r['by_wgmma']:
            found.add(('attention', 'no wgmma kernel has run'))
    return found


# ---- tables ----

def find(rows, step, wanted, key):
    """The last such row's number."""
    found = [r[key] for r in rows if r['step'] == step and key in r and all(r.get(k) == v for k, v in wanted.items())]
    return found[-1] if found else None


def number(x):
    return '-' if x is None else f'{x:,.0f}' if abs(x) >= 100 else f'{x:.3g}'


def goals(rows):
    print('| goal (one H200) | wanted | reached | |\n|---|---|---|---|')
    for name, step, wanted, key, factor, unit, goal in GOALS:
        got = find(rows, step, wanted, key)
        got = None if got is None else got * factor
        met = '' if got is None or goal is None else 'met' if (got <= goal if key in LESS_IS_BETTER else got >= goal) else 'missed'
        print(f'| {name} | {number(goal)} {unit if goal else ""} | {number(got)} {unit if got is not None else ""} | {met} |')


def peers(rows):
    """Rows that PyTorch has as well."""
    print('\n| | quire | PyTorch | quire by PyTorch |\n|---|---|---|---|')
    torch = {r['case']: r for r in rows if r['step'] == 'torch-kern' and 'median_us' in r}
    for r in rows:
        if r['step'] in ('kern-linear', 'kern-attention', 'kern-rows') and r.get('case') in torch:
            t = torch[r['case']]['median_us']
            print(f'| {r["case"]} | {number(r["median_us"])} us | {number(t)} us | {t / r["median_us"]:.2f} |')
    for step, ours, their_step, theirs, key in PEERS:
        a, b = find(rows, step, ours, key), find(rows, their_step, theirs, key)
        if a and b:
            print(f'| {step}, {theirs["case"]} | {number(a)} {TOKENS} | {number(b)} {TOKENS} | {a / b:.2f} |')


def ablations(rows):
    first = [r for r in rows if r['step'] == 'ablations' and r.get('case') == 'decode']
    if not first:
        return
    print('\n| one sequence, 1B, without | tok/s | of all on |\n|---|---|---|')
    for r in first:
        print(f'| {r["without"]} | {number(r["tok_s"])} | {100 * r["tok_s"] / first[0]["tok_s"]:.0f} % |')


def deterministic(rows):
    """What the same bits in any batch cost."""
    print('\n| --deterministic | tok/s | of the default |\n|---|---|---|')
    for step, plain in (('deterministic-1b', 'throughput-1b'), ('deterministic-8b', 'throughput-8b')):
        for r in (r for r in rows if r['step'] == step and 'tok_s' in r):
            usual = find(rows, plain, {k: r[k] for k in ('case', 'batch', 'depth')}, 'tok_s')
            if usual:
                print(f'| {plain.removeprefix("throughput-")}, {r["case"]} of {r["batch"]} | {number(r["tok_s"])} | {100 * r["tok_s"] / usual:.0f} % |')


def main():
    if sys.argv[1:2] == ['--take'] and len(sys.argv) == 5:
        return take(*sys.argv[2:])
    if len(sys.argv) < 2 or sys.argv[1].startswith('-'):
        sys.exit(__doc__)
    rows = []
    for out in sys.argv[1:]:
        with open(os.path.join(out, 'results.jsonl'), encoding='utf-8') as f:
            rows += [json.loads(line) for line in f]
    goals(rows)
    peers(rows)
    ablations(rows)
    deterministic(rows)
    return 0


if __name__ == '__main__':
    sys.exit(main())
