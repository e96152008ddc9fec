#!/usr/bin/env python3
"""gpu_check.py QUIRE MODEL - a model on the GPU against itself and against the processor; exit status 1 when something differs that must not.

Same bytes, with --deterministic: a run and its repetition; a prompt alone and among others; without it only the repetition must be, the rest is printed. Close: log-probabilities of given tokens on the GPU and on the processor, whose sums are
of the same bf16 products in another order (kernels.h); what they may differ by is printed, and checked with the margin that follows from 24 bits of f32 and the
rounding of activations to 8 bits: a rounding that falls to the other side moves an activation by 2^-8 of itself, a logit of size 10 by about 0.04."""
import json
import subprocess
import sys

QUIRE, MODEL = sys.argv[1], sys.argv[2]
PROMPTS = ['Once upon a time', 'The golden key', 'Ben lived in', 'a', 'One day there was a small house by the sea, and in it']
MARGIN = 0.15


def run(command, lines, *flags):
    try:
        out = subprocess.run([QUIRE, command, '--model', MODEL, *flags], input=lines, capture_output=True, text=True, timeout=50)
    except subprocess.TimeoutExpired as e:
        sys.exit(f'error: quire {command} {" ".join(flags)}: not done after {e.timeout} s; so far: {(e.stderr or b"").decode()[-2000:].strip()}')
    if out.returncode != 0:
        sys.exit(f'error: quire {command} {" ".join(flags)}: status {out.returncode}: {out.stderr.strip()}')
    return [json.loads(line) for line in out.stdout.splitlines()]


def main():
    bad = 0
    lines = ''.join(json.dumps(p) + '\n' for p in PROMPTS)
    for mode in (['--deterministic'], []):
        flags = ['--device', 'cuda', '--prompts', '-', '--json', '--max-tokens', '48', '--ignore-eos', *mode]
        together, again = run('generate', lines, *flags), run('generate', lines, *flags)
        alone = [run('generate', json.dumps(p) + '\n', *flags)[0] for p in PROMPTS]
        chunks = run('generate', lines, *flags, '--max-chunk-tokens', '3')
        for name, other in (('again', again), ('alone', alone), ('in chunks of 3', chunks)):
            same = [a['ids'] == b['ids'] for a, b in zip(together, other)]
            print(f'{name}{"".join(" " + m for m in mode)}: {sum(same)} of {len(same)} prompts give the same tokens')
            bad += not all(same) and (name == 'again' or bool(mode))
    ids = ''.join(json.dumps({'ids': a['prompt_ids'] + a['ids']}) + '\n' for a in together)
    cpu, cuda = run('score', ids, '--device', 'cpu'), run('score', ids, '--device', 'cuda')
    far = max(abs(x - y) for a, b in zip(cpu, cuda) for x, y in zip(a['logprobs'][1:], b['logprobs'][1:]))
    print(f'log-probabilities of {sum(len(a["ids"]) for a in cpu)} tokens: GPU and processor differ by {far:.4f} at most (allowed {MARGIN})')
    bad += not far <= MARGIN
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
