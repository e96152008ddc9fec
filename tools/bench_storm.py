#!/usr/bin/env python3
"""bench_storm.py - long prompts storm in beside running streams: what each way of sharing the steps does to both.

    tools/bench_storm.py --model DIR [--rounds 2] [--streams 16] [--storm 8] [--storm-len 4096]

Each round starts `quire serve` once per way, in turn: prefill-first, the default (mixed steps cut to --itl-goal), mixed without a goal.
For each, `quire bench load` keeps the streams running and, when all of them have begun, a second one sends the storm at once.
Printed per way, medians over the rounds: the gaps between the streams' tokens (ITL), the first token of the storm's prompts
(TTFT), and both as ratios to prefill-first of the same run. Exit status 1 when the default misses --itl-ratio or --ttft-ratio.

Standard library only; the program is build/quire or QUIRE_BIN.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
import lib  # noqa: E402

WAYS = {
    'prefill-first': ['--policy', 'prefill-first'],
    'default': [],
    'mixed, no goal': ['--itl-goal', '0'],
}


def load(server, *args):
    """Starts `quire bench load` against the server; its JSON comes on stdout."""
    command = [lib.QUIRE, 'bench', 'load', '--url', f'http://127.0.0.1:{server.port}', '--json', '-', '--no-progress', *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def figures(process):
    out, _ = process.communicate(timeout=300)
    result = json.loads(out)
    assert result['failed'] == 0, f'{result["failed"]} requests failed'
    return result


def until_all_decode(server, n, seconds=60):
    """Until n sequences produce tokens and no prompt is being computed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _, text = server.get('/metrics')
        value = {line.split('{')[0]: float(line.rsplit(' ', 1)[1]) for line in text.split('\n') if line and line[0] != '#' and '{' in line}
        if value.get('quire_decode_sequences') == n and value.get('quire_prefill_sequences') == 0:
            return
        time.sleep(0.005)
    raise AssertionError(f'{n} streams did not begin within {seconds} s')


def storm(model, flags, streams, stream_len, n_storm, storm_len, vocab):
    """One server, one storm. Returns ITL percentiles of the streams and TTFT percentiles of the storm, in ms."""
    with lib.Server('--max-running', str(streams + n_storm), '--max-step-tokens', str(max(512, streams + n_storm)), *flags, model=model) as server:
        running = load(server, '--users', streams, '--num-requests', streams, '--input-len', 32, '--output-len', stream_len, '--vocab', vocab)
        until_all_decode(server, streams)
        rain = load(server, '--rate', '1e6', '--users', n_storm, '--num-requests', n_storm, '--input-len', storm_len, '--output-len', 4, '--seed', 7,
                    '--vocab', vocab)
        a, b = figures(running), figures(rain)
    return {'itl_p50': a['median_itl_ms'], 'itl_p99': a['p99_itl_ms'], 'itl_max': a['max_itl_ms'], 'ttft_p50': b['median_ttft_ms'],
            'ttft_p99': b['p99_ttft_ms']}


def compare(model, rounds, streams=16, stream_len=80, n_storm=8, storm_len=4096, vocab=400, ways=tuple(WAYS), flags=()):
    """Medians of every figure per way; the ways take turns within a round."""
    runs = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            runs[way].append(storm(model, [*flags, *WAYS[way]], streams, stream_len, n_storm, storm_len, vocab))
    return {way: {key: statistics.median(r[key] for r in runs[way]) for key in runs[way][0]} for way in ways}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--model', required=True)
    p.add_argument('--rounds', type=int, default=2)
    p.add_argument('--streams', type=int, default=16)
    p.add_argument('--stream-len', type=int, default=80, help='tokens of each stream; below 100, so that one stall each shows in the 99th percentile')
    p.add_argument('--storm', type=int, default=8)
    p.add_argument('--storm-len', type=int, default=4096)
    p.add_argument('--itl-ratio', type=float, default=0.2, help='largest ITL p99 of the default, as a part of that of prefill-first')
    p.add_argument('--ttft-ratio', type=float, default=1.15, help='largest TTFT p99 of the default, as a multiple of that of prefill-first')
    p.add_argument('flags', nargs='*', help='more flags for quire serve, behind --')
    o = p.parse_args()
    result = compare(o.model, o.rounds, o.streams, o.stream_len, o.storm, o.storm_len, flags=o.flags)
    base = result['prefill-first']
    print(f'{o.streams} streams, then {o.storm} prompts of {o.storm_len} tokens at once; medians of {o.rounds} rounds, ms')
    print(f'{"":16}{"ITL p50":>9}{"p99":>9}{"max":>9}{"TTFT p50":>10}{"p99":>9}{"ITL p99":>10}{"TTFT p99":>10}')
    for way, r in result.items():
        print(f'{way:16}{r["itl_p50"]:9.1f}{r["itl_p99"]:9.1f}{r["itl_max"]:9.1f}{r["ttft_p50"]:10.0f}{r["ttft_p99"]:9.0f}'
              f'{r["itl_p99"] / base["itl_p99"]:9.3f}x{r["ttft_p99"] / base["ttft_p99"]:9.3f}x')
    ours = result['default']
    good = ours['itl_p99'] <= o.itl_ratio * base['itl_p99'] and ours['ttft_p99'] <= o.ttft_ratio * base['ttft_p99']
    print('the default holds both bounds' if good else 'the default MISSES a bound')
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
