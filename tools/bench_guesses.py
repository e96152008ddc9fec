#!/usr/bin/env python3
"""bench_guesses.py - what guessed tokens (--speculate auto) are worth beside none, on answers that are known to the id.

    tools/bench_guesses.py --model DIR --tokenizer DIR [--overlap 60-100] [--users 1] [--rounds 7] [--tokens 256] [-- flags for quire serve]

The model gets DIR's shape and cost and an answer that is known: its layers add nothing, and its head is the embedding with rows moved, so that token t is
followed by 5 t + 1. So a prompt can hold any part of what will be said. Which parts it holds comes from edits of this repository's files: the new file is the
answer, and stretches of it that the old file has are in the prompt; what an edit changed is random there. Lengths are tokens of --tokenizer. --overlap picks
edits whose answer was in the prompt to so many per cent, `none` has a prompt of other ids. Two servers, auto and off, take turns; their ids must be equal. Printed are ratios of tokens/s
of a sequence (decoding alone) and of all together (prompts counted).

Standard library only; the program is build/quire or QUIRE_BIN.
"""
import argparse
import difflib
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
import lib  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')


def following(token, n_vocab):
    return (5 * token + 1) % n_vocab


def make_model(source, out):
    """DIR's model with zeros where layers end, and a head of its own."""
    config = json.load(open(f'{source}/config.json'))
    n_vocab = config['vocab_size']
    assert n_vocab % 5, 'the vocabulary is a multiple of 5: 5 t + 1 would not reach all of it'
    for name in os.listdir(source):
        if name not in ('config.json', 'model.safetensors'):
            os.symlink(os.path.abspath(f'{source}/{name}'), f'{out}/{name}')
    json.dump({**config, 'tie_word_embeddings': False}, open(f'{out}/config.json', 'w'))
    with open(f'{source}/model.safetensors', 'rb') as f, open(f'{out}/model.safetensors', 'wb') as to:
        n_head = struct.unpack('<Q', f.read(8))[0]
        tensors = {k: v for k, v in json.loads(f.read(n_head)).items() if k not in ('__metadata__', 'lm_head.weight')}
        embedding = tensors['model.embed_tokens.weight']
        head, at = {}, 0
        for name, t in [*tensors.items(), ('lm_head.weight', embedding)]:
            n = t['data_offsets'][1] - t['data_offsets'][0]
            head[name] = {**t, 'data_offsets': [at, at + n]}
            at += n
        text = json.dumps(head).encode()
        text += b' ' * (-len(text) % 8)
        to.write(struct.pack('<Q', len(text)) + text)
        for name, t in tensors.items():
            begin, end = t['data_offsets']
            f.seek(8 + n_head + begin)
            to.write(bytes(end - begin) if 'o_proj' in name or 'down_proj' in name else f.read(end - begin))
        begin, end = embedding['data_offsets']
        row = (end - begin) // n_vocab
        f.seek(8 + n_head + begin)
        rows = f.read(end - begin)
        order = [0] * n_vocab
        for t in range(n_vocab):
            order[following(t, n_vocab)] = t
        for t in order:
            to.write(rows[t * row:(t + 1) * row])


def tokenize(tokenizer, texts):
    lines = ''.join(json.dumps({'text': t, 'add_special_tokens': False}) + '\n' for t in texts)
    out = subprocess.run([lib.QUIRE, 'tokenize', tokenizer], input=lines.encode(), capture_output=True, check=True).stdout
    return [json.loads(line)['ids'] for line in out.splitlines()]


def stretches_of(kept):
    runs = []
    for k in kept:
        if not runs or k != runs[-1][0]:
            runs.append([k, 0])
        runs[-1][1] += 1
    return runs


def edits(tokenizer, low, high, n_tokens, count):
    """Stretches [kept, length] of n_tokens tokens of edited files, of which low to high per cent are in the old file: one of a commit."""
    def git(*args):
        return subprocess.run(['git', '-C', ROOT, *args], capture_output=True, check=True).stdout.decode(errors='replace')
    draw, found = random.Random(29), []
    commits = git('log', '--no-merges', '--format=%h', '-n', '700').split()
    draw.shuffle(commits)
    for commit in commits:
        paths = git('diff-tree', '-r', '--no-commit-id', '--diff-filter=M', '--name-only', commit).split('\n')
        path = next((p for p in paths if p.endswith(('.c', '.h', '.py', '.md'))), None)
        if not path:
            continue
        old, new = tokenize(tokenizer, [git('show', f'{commit}^:{path}'), git('show', f'{commit}:{path}')])
        if len(old) > 2600 or not n_tokens <= len(new) <= 6000:
            continue
        kept = [False] * len(new)
        for m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            for i in range(m.b, m.b + m.size if m.size >= 4 else m.b):
                kept[i] = True
        windows = [kept[i:i + n_tokens] for i in range(0, len(new) - n_tokens + 1, 32)]
        window = next((w for w in windows if low <= 100 * sum(w) / n_tokens < high), None)
        if window:
            found.append(stretches_of(window))
            if len(found) == count:
                break
    assert found, 'this repository has no such edits: is it a shallow clone?'
    return found


def make_prompt(seed, runs, n_tokens, n_vocab):
    """The prompt, and what will be said."""
    draw = random.Random(seed)
    start = draw.randrange(n_vocab)
    answer = [following(start, n_vocab)]
    while len(answer) < n_tokens:
        answer.append(following(answer[-1], n_vocab))
    prompt, at = [], 0
    for kept, n in runs:
        prompt += answer[at:at + n] if kept else [draw.randrange(n_vocab) for _ in range(n)]
        at += n
    return [*prompt, start], answer


def ask(server, prompt, n_tokens):
    body = {'prompt': prompt, 'max_tokens': n_tokens, 'temperature': 0, 'ignore_eos': True, 'return_token_ids': True, 'timings': True,
            'cache_salt': str(random.random())}
    request = urllib.request.Request(f'http://127.0.0.1:{server.port}/v1/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=3600) as r:
        return json.load(r)


def one_round(server, prompts, n_tokens):
    """Tokens/s of a sequence and together, ids, guesses that were right and all."""
    out = [None] * len(prompts)

    def go(i):
        out[i] = ask(server, prompts[i][0], n_tokens)
    threads = [threading.Thread(target=go, args=(i,)) for i in range(len(prompts))]
    begun = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds = time.monotonic() - begun
    timings = [o['timings'] for o in out]
    return (statistics.mean(t['predicted_per_second'] for t in timings), len(prompts) * n_tokens / seconds, [o['choices'][0]['token_ids'] for o in out],
            sum(t.get('draft_n_accepted', 0) for t in timings), sum(t.get('draft_n', 0) for t in timings))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--model', required=True)
    p.add_argument('--tokenizer', required=True, help='a directory with tokenizer.json')
    p.add_argument('--overlap', default='60-100', help='per cent of the answer that the prompt has, LOW-HIGH, or none')
    p.add_argument('--users', type=int, default=1)
    p.add_argument('--rounds', type=int, default=7)
    p.add_argument('--tokens', type=int, default=256)
    p.add_argument('flags', nargs='*')
    o = p.parse_args()
    n_vocab = json.load(open(f'{o.model}/config.json'))['vocab_size']
    runs = [[[False, o.tokens]]] if o.overlap == 'none' else edits(o.tokenizer, *map(int, o.overlap.split('-')), o.tokens, 40)
    own, together = [], []
    with tempfile.TemporaryDirectory() as model:
        make_model(o.model, model)
        flags = ['--max-len', '4096', *o.flags]
        with lib.Server('--speculate', 'auto', *flags, model=model) as auto, lib.Server('--speculate', 'off', *flags, model=model) as off:
            for k in range(-1, o.rounds):
                prompts = [make_prompt(k * o.users + i, runs[(k * o.users + i) % len(runs)], o.tokens, n_vocab) for i in range(o.users)]
                first, second = (auto, off) if k % 2 else (off, auto)
                result = {first: one_round(first, prompts, o.tokens), second: one_round(second, prompts, o.tokens)}
                a, b = result[auto], result[off]
                assert a[2] == b[2] == [answer for _, answer in prompts], 'ids are not what they must be'
                if k < 0:
                    continue # the first round warms up
                own.append(a[0] / b[0])
                together.append(a[1] / b[1])
                print(f'round {k}: auto {a[0]:.2f}, off {b[0]:.2f} tok/s a sequence, ratio {own[-1]:.3f}; together {together[-1]:.3f}; {a[3]} of {a[4]} guesses right',
                      flush=True)
    print(f'overlap {o.overlap}, {o.users} at once: {statistics.median(own):.3f} a sequence ({min(own):.3f} to {max(own):.3f}), {statistics.median(together):.3f} together')
    return 0


if __name__ == '__main__':
    sys.exit(main())
