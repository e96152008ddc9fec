#!/usr/bin/env python3
"""Long contexts: one prompt computed in chunks of several sizes says the same bytes, and the server takes the memory that `quire plan` says. Standard library only.

    tools/check_long.py --tokens 131072 --layers 2 --chunks 256,2048 [--quire build/quire] [--cache-dtype int8] [--model DIR]

The model is one of random weights with the shape of --like, with its rotary scaling, made beside the system's temporary files unless --model names another. The
answer is 16 tokens of one sampled and one greedy request with log-probabilities; the second finds the first one's prompt in the cache. Takes minutes to hours.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
LLAMA3 = {'rope_type': 'llama3', 'factor': 32.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 8192}
ANSWER = 16
MIB = 2 ** 20


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    p.add_argument('--quire', default='build/quire')
    p.add_argument('--model', help='a model directory; none is made then')
    p.add_argument('--like', default='llama-3.2-1b')
    p.add_argument('--layers', default='2', help='0: all')
    p.add_argument('--tokens', type=int, default=131072, help='of the context: prompt, answer and one to spare')
    p.add_argument('--chunks', default='256,2048')
    p.add_argument('--threads', default='0')
    p.add_argument('--cache-dtype', default='auto')
    return p.parse_args()


def make_model(args, folder):
    """With Llama 3's scaling of positions, which the shapes of `make-model` lack."""
    path = os.path.join(folder, 'model')
    subprocess.run([args.quire, 'bench', 'make-model', '--like', args.like, '--layers', args.layers, '--out', path], check=True)
    name = os.path.join(path, 'config.json')
    with open(name, encoding='utf-8') as f:
        config = json.load(f)
    config['rope_scaling'] = LLAMA3
    with open(name, 'w', encoding='utf-8') as f:
        json.dump(config, f)
    return path, config['vocab_size']


def resident_bytes(pid):
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith('VmRSS'))


def answers(server, prompt):
    """Of a sampled request and a greedy one, with the seconds that each took."""
    found = []
    for temperature in (1.0, 0.0):
        began = time.monotonic()
        body = {'model': 'model', 'prompt': prompt, 'max_tokens': ANSWER, 'temperature': temperature, 'seed': 7, 'logprobs': 5, 'ignore_eos': True}
        events = list(server.stream('/v1/completions', body))
        assert all('choices' in e for e in events), events[-1]
        choices = [c for e in events for c in e['choices']]
        values = [(t, v) for c in choices if c['logprobs'] for t, v in zip(c['logprobs']['tokens'], c['logprobs']['top_logprobs'])]
        assert len(values) == ANSWER, choices
        found.append(((''.join(c['text'] for c in choices), values), time.monotonic() - began))
    return found


def main():
    args = arguments()
    os.environ['QUIRE_BIN'] = os.path.abspath(args.quire)
    import lib  # which reads QUIRE_BIN
    failed, first = False, None
    with tempfile.TemporaryDirectory() as folder:
        model, n_vocab = (args.model, None) if args.model else make_model(args, folder)
        if n_vocab is None:
            with open(os.path.join(model, 'config.json'), encoding='utf-8') as f:
                n_vocab = json.load(f)['vocab_size']
        rng = random.Random(20261129)
        prompt = [rng.randrange(3, n_vocab // 2) for _ in range(args.tokens - ANSWER - 1)]
        for chunk in args.chunks.split(','):
            settings = ['--max-len', str(args.tokens), '--kv-tokens', str((args.tokens + 31) // 16 * 16), '--max-running', '2', '--max-step-tokens', chunk,
                        '--max-chunk-tokens', chunk, '--threads', args.threads, '--kv-cache-dtype', args.cache_dtype]
            rc, out, err = lib.run('plan', '--model', model, '--json', *settings)
            assert rc == 0, err
            planned = json.loads(out)['total_bytes']
            with lib.Server('--served-model-name', 'model', '--request-timeout', '24h', '--watchdog', '1h', *settings, model=model) as server:
                server.connect = lambda: lib.http.client.HTTPConnection('127.0.0.1', server.port)
                (sampled, first_s), (greedy, again_s) = answers(server, prompt)
                resident = resident_bytes(server.process.pid)
            first = first or (sampled, greedy)
            same, off = (sampled, greedy) == first, resident / planned - 1
            failed |= not same or abs(off) > 0.05
            print(f'{args.tokens} tokens in chunks of {chunk}, cache {args.cache_dtype}: {"the same bytes" if same else "OTHER BYTES"}; {first_s:.0f} s, again '
                  f'{again_s:.1f} s; planned {planned / MIB:.0f} MiB, resident {resident / MIB:.0f} ({100 * off:+.1f} %)', flush=True)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
