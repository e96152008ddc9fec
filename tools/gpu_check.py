#!/usr/bin/env python3
"""gpu_check.py QUIRE MODEL [--tokens N] [--prompts N] - a model on the GPU against itself and against the processor; exit status 1 when something differs that must not.
gpu_check.py QUIRE --goldens DIR [--tokens N] - the models below DIR on the GPU against what others computed (golden.jsonl).
gpu_check.py --losses DIR DIR | --scores FILE FILE - logs of two runs of `quire train`, log-probabilities of two of `quire score`.

Same bytes, with --deterministic: a run and its repetition; a prompt alone and among others; without it only the repetition must be, the rest is printed. Close:
log-probabilities of given tokens on the GPU and on the processor, whose sums are of the same bf16 products in another order (kernels.h); what they may differ by
is printed, and checked with the margin that follows from 24 bits of f32 and the rounding of activations to 8 bits: a rounding that falls to the other side moves
an activation by 2^-8 of itself, a logit of size 10 by about 0.04."""
import argparse
import json
import os
import subprocess
import sys

PROMPTS = ['Once upon a time', 'The golden key', 'Ben lived in', 'a', 'One day there was a small house by the sea, and in it']
SECONDS = 50 * int(os.environ.get('QUIRE_GPU_PATIENCE', 1))  # of one run of the program
MARGIN = 0.15
MARGIN_F32 = 0.002  # nothing is rounded to 8 bits: logits of size 20 through some hundred sums of 24 bits, one behind the other
MARGIN_LOSS = 0.02  # averages of a thousand log-probabilities, each within MARGIN and to either side


def run(quire, model, command, lines, *flags):
    try:
        out = subprocess.run([quire, command, '--model', model, *flags], input=lines, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as e:
        sys.exit(f'error: quire {command} {" ".join(flags)}: not done after {e.timeout} s; so far: {(e.stderr or b"").decode()[-2000:].strip()}')
    if out.returncode != 0:
        sys.exit(f'error: quire {command} {" ".join(flags)}: status {out.returncode}: {out.stderr.strip()}')
    return [json.loads(line) for line in out.stdout.splitlines()]


def worst_of(one, two):
    """Of two lists of log-probabilities, nothing where there is none."""
    return max((abs(a - b) for a, b in zip(one, two) if a is not None), default=0)


def against_itself(o):
    bad, prompts = 0, PROMPTS[:o.prompts]
    lines = ''.join(json.dumps(p) + '\n' for p in prompts)
    for mode in (['--deterministic'], []):
        flags = ['--device', 'cuda', '--prompts', '-', '--json', '--max-tokens', str(o.tokens), '--ignore-eos', *mode]
        together, again = run(o.quire, o.model, 'generate', lines, *flags), run(o.quire, o.model, 'generate', lines, *flags)
        alone = [run(o.quire, o.model, 'generate', json.dumps(p) + '\n', *flags)[0] for p in prompts]
        chunks = run(o.quire, o.model, 'generate', lines, *flags, '--max-chunk-tokens', '3')
        for name, other in (('again', again), ('alone', alone), ('in chunks of 3', chunks)):
            same = [a['ids'] == b['ids'] for a, b in zip(together, other)]
            print(f'{name}{"".join(" " + m for m in mode)}: {sum(same)} of {len(same)} prompts give the same tokens')
            bad += not all(same) and (name == 'again' or bool(mode))
    ids = ''.join(json.dumps({'ids': a['prompt_ids'] + a['ids']}) + '\n' for a in together)
    cpu, cuda = (run(o.quire, o.model, 'score', ids, '--device', d) for d in ('cpu', 'cuda'))
    far = max(worst_of(a['logprobs'][1:], b['logprobs'][1:]) for a, b in zip(cpu, cuda))
    print(f'log-probabilities of {sum(len(a["ids"]) for a in cpu)} tokens: GPU and processor differ by {far:.4f} at most (allowed {MARGIN})')
    return bad + (not far <= MARGIN)


def against_goldens(o):
    """In f32, as they were made. Tokens must be the same where the best two are clearly apart all the way."""
    bad, models = 0, sorted(d for d in os.listdir(o.goldens) if os.path.exists(os.path.join(o.goldens, d, 'golden.jsonl')))
    for name in models:
        model = os.path.join(o.goldens, name)
        with open(os.path.join(model, 'golden.jsonl'), encoding='utf-8') as f:
            golden = [json.loads(line) for line in f]
        device = ['--device', 'cuda', '--dtype', 'f32']
        scores = run(o.quire, model, 'score', ''.join(json.dumps({'ids': g['prompt_ids']}) + '\n' for g in golden), *device, '--logits')
        far = max(worst_of(g.get(ours, []), s[theirs]) for g, s in zip(golden, scores) for ours, theirs in (('prompt_logprobs', 'logprobs'), ('last_logits', 'logits')))
        clear = [g for g in golden if g['min_gap'] > 2 * MARGIN_F32]
        answers = run(o.quire, model, 'generate', ''.join(json.dumps({'ids': g['prompt_ids']}) + '\n' for g in clear), *device, '--prompts', '-', '--json',
                      '--ignore-eos', '--max-tokens', str(o.tokens))
        same = sum(a['ids'][:len(g['greedy_ids'])] == g['greedy_ids'][:o.tokens] for a, g in zip(answers, clear))
        print(f'{name}: logits and log-probabilities differ by {far:.5f} at most (allowed {MARGIN_F32}); {same} of {len(clear)} answers are the same')
        bad += not far <= MARGIN_F32 or same < len(clear)
    if not models:
        print(f'no goldens in {o.goldens}')
        return 77
    return bad


def losses(one, two):
    a, b = ([json.loads(line)['loss'] for line in open(os.path.join(d, 'log.jsonl'), encoding='utf-8')] for d in (one, two))
    far = max(abs(x - y) for x, y in zip(a, b)) if a and len(a) == len(b) else float('nan')
    print(f'losses of {len(a)} and {len(b)} steps differ by {far:.5f} at most (allowed {MARGIN_LOSS})')
    return not far <= MARGIN_LOSS


def scores(one, two):
    far = worst_of(*(json.loads(open(f, encoding='utf-8').readline())['logprobs'] for f in (one, two)))
    print(f'log-probabilities differ by {far:.6f} at most (allowed 0.001)')
    return not far <= 1e-3


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('quire', nargs='?')
    p.add_argument('model', nargs='?')
    p.add_argument('--tokens', type=int, default=48)
    p.add_argument('--prompts', type=int, default=len(PROMPTS))
    p.add_argument('--goldens')
    p.add_argument('--losses', nargs=2)
    p.add_argument('--scores', nargs=2)
    o = p.parse_args()
    if o.losses:
        return losses(*o.losses)
    if o.scores:
        return scores(*o.scores)
    if o.goldens and not os.path.isdir(o.goldens):
        print(f'no folder {o.goldens}: tools/gpu.sh pack takes it along where there is conformance data')
        return 77
    bad = against_goldens(o) if o.goldens else against_itself(o)
    return bad if bad == 77 else min(bad, 1)


if __name__ == '__main__':
    sys.exit(main())
