#!/usr/bin/env python3
"""check_pair.py - prefill and decode apart, at length: what tests/e2e/test_pair.py asks for in seconds, in numbers that a promise needs, and what it costs and brings.

    tools/check_pair.py same [--requests 1000]        through shared memory, TCP, and TCP between network namespaces at 1 Gbit/s (root): the bytes of one process
    tools/check_pair.py kills [--kills 200]           either side is killed at random moments; a proxy flips bits, cuts and stalls: no wrong byte, none 1 s late
    tools/check_pair.py routers [--requests 100]      other people's routers, as they are, in their modes for prefill and decode apart (build/world, as check_routers.py)
    tools/check_pair.py storm --model DIR [--rounds 2]  16 streams beside prompts of 4,096 tokens: through `serve --pair`, and through one process, in turn;
                                                      [--storm 6] of them, [--speculate off], [--slo ttft:40s,tpot:200ms], [--ways pair/one]
    tools/check_pair.py prefix --model DIR            the first token of a prompt of 4,096 tokens that a peer, or the file tier after a kill, has

Each prints what it found beside what is asked for, and exits with 1 where that is missed. Times mean nothing on a machine that does something else.
Standard library only; the program is build/quire or QUIRE_BIN. Models of a published shape: `quire bench make-model`.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import random
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
import lib  # noqa: E402
import mixed  # noqa: E402
import sides  # noqa: E402

SPACE, HERE, THERE = 'quire-pair', '10.83.7.1', '10.83.7.2'


class Report:
    failed = False

    def say(self, what, good, found):
        self.failed |= not good
        print(f"{'ok  ' if good else 'FAIL'} {what}: {found}", flush=True)


@contextlib.contextmanager
def namespace(rate='1gbit'):
    """Another network on this machine, reached by a link of that rate both ways; yields what runs a program there."""
    def ip(*args):
        subprocess.run(args, check=True, capture_output=True, timeout=30)
    shaped = ('root', 'tbf', 'rate', rate, 'burst', '256kb', 'latency', '50ms')
    inside = ('ip', 'netns', 'exec', SPACE)
    subprocess.run(['ip', 'netns', 'del', SPACE], capture_output=True, timeout=30, check=False)
    ip('ip', 'netns', 'add', SPACE)
    try:
        ip('ip', 'link', 'add', 'quire-here', 'type', 'veth', 'peer', 'name', 'quire-there', 'netns', SPACE)
        for before, name, address in (((), 'quire-here', HERE), (inside, 'quire-there', THERE)):
            ip(*before, 'ip', 'addr', 'add', address + '/24', 'dev', name)
            ip(*before, 'ip', 'link', 'set', name, 'up')
            ip(*before, 'tc', 'qdisc', 'add', 'dev', name, *shaped)
        yield inside
    finally:
        subprocess.run(['ip', 'netns', 'del', SPACE], capture_output=True, timeout=30, check=False)


@contextlib.contextmanager
def ways(model):
    """Pairs, by what connects them: name, and what makes one with more flags."""
    places, held = sides.addresses()
    with contextlib.ExitStack() as stack:
        out = [(name, lambda *more, address=address: sides.Sides(address, more, model=model)) for name, address in places.items()]
        if os.geteuid() == 0:
            inside = stack.enter_context(namespace())
            secret = stack.enter_context(tempfile.NamedTemporaryFile('w', prefix='quire-secret-'))
            secret.write(secrets.token_hex(32) + '\n')
            secret.flush()
            out.append(('tcp between namespaces at 1 Gbit/s', lambda *more: sides.Sides(f'{THERE}:7070', ['--peer-secret-file', secret.name, *more], model=model,
                                                                                       before=inside)))
        else:
            print('SKIP namespaces: root is needed')
        yield out
    del held


def alone(model, todo, times):
    """Outcomes of one process, and the median of the seconds that each request took, of so many times."""
    with lib.Server(model=model) as one:
        outcomes = mixed.run(one.port, todo)
        seconds = [statistics.median(mixed.ask(one.port, r).seconds for _ in range(times)) if times and r.cancel_s is None else 0 for r in todo]
    return outcomes, seconds


def check_same(o, report):
    todo = mixed.requests(o.requests, o.seed, n_prefixes=max(8, o.requests // 16))
    expected, _ = alone(o.model, todo, 0)
    with ways(o.model) as pairs:
        for name, make in pairs:
            with make() as pair:
                ours = mixed.run(pair.d.at, todo)
                try:
                    mixed.same(todo, ours, expected)
                    pair.consistent()
                    found = f'{pair.from_peer():.0f} of {mixed.metrics(pair.d.at)["vllm:prompt_tokens_total"]:.0f} prompt tokens came from the peer'
                    report.say(f'{name}: {len(todo)} requests have the bytes of one process', pair.from_peer() > 0, found)
                except AssertionError as e:
                    report.say(f'{name}: {len(todo)} requests have the bytes of one process', False, e)


def check_kills(o, report):
    todo = [r for r in mixed.requests(o.requests, o.seed) if r.cancel_s is None]
    expected, seconds = alone(o.model, todo, 5)
    rng = random.Random(o.seed)
    places, held = sides.addresses()
    for name, address in places.items():
        with sides.Sides(address, model=o.model) as pair:
            longest, n = sides.ask_through_kills(pair, todo, expected, 2, o.kills // len(places), rng)
            judge(report, f'{name}: {o.kills // len(places)} kills, {n} answers', pair, [a - b for a, b in zip(longest, seconds)])
    for what in ({'flip_every': 100000}, {'cut_every': 300000}, {'stall_every': 500000, 'stall_s': 3}, {'flip_every': 300000, 'cut_every': 1000000, 'stall_every': 2000000}):
        proxy = sides.Proxy(places['tcp'], o.seed, **what)
        with sides.Sides(places['tcp'], through=proxy.address, model=o.model) as pair:
            ours = mixed.run(pair.d.at, todo, at_once=2)
            mixed.same(todo, ours, expected)
            judge(report, f'a line with {what}: {proxy.n}', pair, [a.seconds - b for a, b in zip(ours, seconds)])
        proxy.close()
    del held


def judge(report, name, pair, late_s):
    """All bytes were equal by now."""
    pair.consistent()
    report.say(f'{name}: every byte equal', max(late_s) <= 1, f'the latest by {max(late_s):.2f} s')


# ---- routers ----

def command(name, pair, bootstrap, port):
    """A router's, in its mode for prefill and decode apart."""
    world = os.environ.get('QUIRE_WORLD') or os.path.join(lib.ROOT, 'build', 'world')
    held = lib.Port()
    metrics = held.number
    held.socket.close()
    return [os.path.join(world, name, 'bin', name), *([] if name == 'vllm-router' else ['launch']), '--host', '127.0.0.1', '--port', str(port),
            '--vllm-pd-disaggregation' if name == 'vllm-router' else '--pd-disaggregation', '--prefill', f'http://127.0.0.1:{pair.p.port}', str(bootstrap),
            '--decode', f'http://127.0.0.1:{pair.d.port}', '--policy', 'round_robin', '--prometheus-port', str(metrics), '--health-check-endpoint', '/readyz']


@contextlib.contextmanager
def fronted(name, pair, bootstrap):
    """The port of a router that answers."""
    held = lib.Port()
    port = held.number
    held.socket.close()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command(name, pair, bootstrap, port), stdout=log, stderr=log)
        try:
            end = time.monotonic() + 120
            hello = mixed.Request(0, 'hello', '/v1/completions', {'model': 'quire-tiny', 'prompt': 'a', 'max_tokens': 1})
            while True:
                try:
                    if mixed.ask(port, hello, timeout=30).status == 200:
                        break
                except OSError:
                    pass
                assert process.poll() is None and time.monotonic() < end, os.pread(log.fileno(), 1 << 20, 0)[-2000:].decode()
                time.sleep(0.2)
            yield port
        finally:
            process.terminate()
            process.wait(30)


def check_routers(o, report):
    for name, takes_ids in (('vllm-router', True), ('smg', False), ('sglang-router', False)):
        todo = mixed.requests(o.requests, o.seed, without=('embedding', 'cancel'), with_ids=takes_ids)
        for r in todo:
            r.body['model'] = 'quire-tiny'
        expected, _ = alone(o.model, todo, 0)
        places, held = sides.addresses()
        with sides.Sides(places['tcp'], model=o.model, sockets=False) as pair:
            try:
                with fronted(name, pair, places['tcp'].rsplit(':', 1)[1]) as port:
                    mixed.same(todo, mixed.run(port, todo), expected)
                hints = sides.labelled(pair.d, 'quire_peer_hints_total', 'asked')
                report.say(f'{name}: {len(todo)} requests have the bytes of one process', pair.from_peer() > 0,
                           f'{pair.from_peer():.0f} prompt tokens came from the peer, which it named {hints:.0f} times')
            except FileNotFoundError:
                print(f'SKIP {name}: it is not installed')
            except AssertionError as e:
                report.say(f'{name}: {len(todo)} requests have the bytes of one process', False, e)
        del held


# ---- the storm ----

class Asked:
    """One prompt of random ids: when it was sent, when each event came, and how many of its tokens were found."""

    def __init__(self, server, rng, n_ids, n_tokens, stop=None):
        self.sent, self.at, self.usage = time.monotonic(), [], None
        body = {'prompt': [rng.randrange(400) for _ in range(n_ids)], 'max_tokens': n_tokens, 'temperature': 0, 'ignore_eos': True, 'stream': True,
                'stream_options': {'include_usage': True}}
        c = mixed.connect(server.port, 1800)
        c.request('POST', '/v1/completions', json.dumps(body), {'Content-Type': 'application/json'})
        r = c.getresponse()
        assert r.status == 200, r.read()
        for line in r:
            if b'"usage":{' in line:
                self.usage = json.loads(line[6:])['usage']
            elif line.startswith(b'data: {'):
                self.at.append(time.monotonic())
            if stop and stop.is_set():
                break
        c.close()

    def ttft(self):
        return self.at[0] - self.sent

    def tpot(self):
        return (self.at[-1] - self.at[0]) / max(1, self.usage['completion_tokens'] - 1)

    def cached(self):
        return (self.usage.get('prompt_tokens_details') or {}).get('cached_tokens', 0)

    def good(self, slo):
        return self.ttft() <= slo[0] and self.tpot() <= slo[1]


class Users:
    """Streams without an end: each user asks again when an answer has ended, so that contexts and work are the same at all times. The first answers are cut so
    that they do not end together."""

    def __init__(self, server, n, stream_len, seed):
        self.stop, self.asked, self.error = threading.Event(), [], None
        self.threads = [threading.Thread(target=self.run, args=(server, stream_len, max(8, stream_len * (i + 1) // n), random.Random(seed + i)), daemon=True)
                        for i in range(n)]
        for t in self.threads:
            t.start()

    def run(self, server, stream_len, first_len, rng):
        n_tokens = first_len
        try:
            while not self.stop.is_set():
                self.asked.append(Asked(server, rng, 32, n_tokens, self.stop))
                n_tokens = stream_len
        except Exception as e:  # pylint: disable=broad-except
            self.error = e

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join()
        assert self.error is None, self.error


def gaps_ms(asked, since, until):
    """Between events of one stream, of those that ended within that time."""
    return sorted((b - a) * 1e3 for one in asked for a, b in zip(one.at, one.at[1:]) if since <= b <= until)


def share(values, p):
    return values[min(len(values) - 1, int(p * len(values)))] if values else 0


def pour(server, o, n_storm, seed):
    """Prompts that come all at once."""
    with concurrent.futures.ThreadPoolExecutor(max(1, n_storm)) as pool:
        return list(pool.map(lambda i: Asked(server, random.Random(1000 * seed + i), o.storm_len, 4), range(n_storm)))


def prefill_process(server):
    """Of a pair, as one to ask by itself."""
    return types.SimpleNamespace(port=re.search(r'the prefill process starts pid=\d+ http=unix:(\S+)', server.stderr())[1])


def rain(server, o, n_storm, pair):
    """Streams alone, then beside prompts that come all at once, then alone again, as long: the largest of more gaps is larger. Of a pair the process that fills
    has as many other prompts of its own then, so that the cores, caches and memory that both share are as busy."""
    users = Users(server, o.streams, o.stream_len, o.seed)
    time.sleep(o.settle_s)
    marks = [time.monotonic()]
    time.sleep(o.idle_s)
    marks.append(time.monotonic())
    storm = pour(server, o, n_storm, o.seed)
    marks.append(time.monotonic())
    if pair and n_storm:
        pour(prefill_process(server), o, n_storm, o.seed + 1)
    else:
        time.sleep(max(o.idle_s, marks[2] - marks[1]) if n_storm else 0)
    marks.append(time.monotonic())
    users.end()
    idle = sorted(gaps_ms(users.asked, *marks[:2]) + gaps_ms(users.asked, *marks[2:]))
    ended = [a for a in users.asked if a.usage]
    worst = {(round((b - marks[1]) * 10), round((b - a) * 1e3)) for one in users.asked for a, b in zip(one.at, one.at[1:]) if marks[1] <= b <= marks[2]}
    return {'idle': idle, 'beside': gaps_ms(users.asked, *marks[1:3]), 'storm': storm, 'seconds': marks[2] - marks[1],
            'worst': [(at / 10, ms) for at, ms in sorted(worst, key=lambda w: -w[1])[:12]],
            'streams': [a for a in ended if marks[1] <= a.at[-1] <= marks[2]], 'idle streams': [a for a in ended if a.at[-1] <= marks[1]]}


def tried(o, more, n_storm):
    """One server, one storm."""
    length = max(o.storm_len, 32 + o.stream_len) + 64
    flags = ['--speculate', o.speculate, '--max-running', str(o.streams + o.storm), '--max-step-tokens', '512', '--max-len', str(length)]
    with lib.Server(*flags, *more, model=o.model, env={'QUIRE_THREADS': '0'}) as server:
        if '--pair' in more:
            until_peer(server)
        return rain(server, o, n_storm, '--pair' in more)


def agreed(o):
    """What requests are promised, as seconds to the first token and a token: as asked, or twice what one process takes that has nothing else to do."""
    if o.slo:
        asked = dict(part.split(':') for part in o.slo.split(','))
        return float(asked['ttft'].rstrip('s')), float(asked['tpot'].removesuffix('ms')) * 1e-3
    with lib.Server('--speculate', o.speculate, '--max-len', str(o.storm_len + 64), model=o.model, env={'QUIRE_THREADS': '0'}) as server:
        alone = Asked(server, random.Random(o.seed), o.storm_len, 4).ttft()
    idle = tried(o, [], 0)
    return 2 * alone, 2 * statistics.median([a.tpot() for a in idle['idle streams']] or [share(idle['idle'], 0.99) * 1e-3])


def told_storm(r, slo):
    """What a report has of one storm."""
    firsts = sorted(a.ttft() for a in r['storm'])
    good = sum(a.good(slo) for a in r['storm'] + r['streams'])
    idle, beside, tpots = r['idle'], r['beside'], sorted(1e3 * a.tpot() for a in r['streams'])
    return {'idle p99': share(idle, 0.99), 'idle max': share(idle, 1), 'itl p50': share(beside, 0.5), 'itl p99': share(beside, 0.99),
            'itl max': share(beside, 1), 'ttft p50': statistics.median(firsts), 'ttft p99': firsts[-1], 'first tokens s': [round(x, 1) for x in firsts],
            'tpot p50': share(tpots, 0.5), 'tpot p90': share(tpots, 0.9), 'largest at s': r['worst'],
            'found': statistics.mean(a.cached() for a in r['storm']), 'storm s': r['seconds'], 'good': good, 'good/min': 60 * good / r['seconds']}


WAYS = {'pair': ['--pair'], 'one': [], 'one, goal 40ms': ['--itl-goal', '40ms'], 'one, prefill first': ['--policy', 'prefill-first']}


def check_storm(o, report):
    ways = {name: WAYS[name] for name in (o.ways.split('/') if o.ways else WAYS)}
    slo = agreed(o)
    print(f'{o.streams} streams of {o.stream_len} tokens, {o.storm} prompts of {o.storm_len}, guesses {o.speculate}; good: TTFT {slo[0]:.1f} s, '
          f'TPOT {slo[1] * 1e3:.0f} ms', flush=True)
    runs = {name: [] for name in ways}
    for _ in range(o.rounds):
        for name, more in ways.items():
            runs[name].append(told_storm(tried(o, more, o.storm), slo))
            print(f'     {name}: ' + ', '.join(f'{k} {v:.1f}' if isinstance(v, float) else f'{k} {v}' for k, v in runs[name][-1].items()), flush=True)
    table = {name: {key: statistics.median(r[key] for r in of) for key in of[0] if not isinstance(of[0][key], list)} for name, of in runs.items()}
    if 'pair' not in runs:
        return
    for i, r in enumerate(runs['pair']):
        report.say(f'round {i + 1}: no gap above one step of its own and 50 ms', r['itl max'] <= r['idle max'] + 50,
                   f"{r['itl max']:.1f} ms, idle {r['idle max']:.1f} ms")
    pair, others = table['pair'], [r for name, r in table.items() if name != 'pair']
    report.say('ITL p99 1.2 times that without the storm (an aim)', pair['itl p99'] <= 1.2 * pair['idle p99'], f"{pair['itl p99'] / pair['idle p99']:.2f}")
    if others:
        best = max(others, key=lambda r: (r['good/min'], -r['itl p99']))
        shown = (('TTFT p50', 'ttft p50', 's'), ('p99', 'ttft p99', 's'), ('ITL p99', 'itl p99', 'ms'), ('good requests', 'good/min', 'a minute'))
        print('     beside the best single process: ' + ', '.join(f'{name} {pair[key]:.1f} : {best[key]:.1f} {unit}' for name, key, unit in shown), flush=True)


def until_peer(server, seconds=120):
    """Until the process that decodes is connected to the other."""
    end = time.monotonic() + seconds
    while 'prefill/' not in server.stderr() and time.monotonic() < end:
        time.sleep(0.05)
    ask(server, [7] * 64)


# ---- a prefix that is somewhere else ----

def ask(server, ids):
    """Seconds to the first token of a prompt of ids, and how many of its tokens were found."""
    began = time.monotonic()
    first = cached = None
    for event in server.stream('/v1/completions', {'prompt': ids, 'max_tokens': 2, 'temperature': 0, 'stream_options': {'include_usage': True}}):
        first = first or time.monotonic() - began
        cached = (event.get('usage') or {}).get('prompt_tokens_details', {}).get('cached_tokens', cached)
    return first, cached


def check_prefix(o, report):
    rng = random.Random(o.seed)
    prompts = [[rng.randrange(1000, 30000) for _ in range(o.prefix + 8)] for _ in range(o.rounds)]
    flags = ['--max-len', str(o.prefix + 64), '--threads', str(o.threads)]
    places, held = sides.addresses()
    with lib.Server('--peer-listen', places['unix'], *flags, model=o.model) as first:
        computed = [ask(first, ids)[0] for ids in prompts]
        with lib.Server('--peer', places['unix'], *flags, model=o.model) as second:
            ask(second, prompts[0][:64])
            told(report, 'a peer', computed, [ask(second, ids) for ids in prompts], o)
    with tempfile.TemporaryDirectory(prefix='quire-kv-') as directory:
        with lib.Server('--kv-file-dir', directory, *flags, model=o.model) as first:
            computed = [ask(first, ids)[0] for ids in prompts]
            time.sleep(2)  # written within a second of its step
            first.process.kill()
            first.process.wait()
        with lib.Server('--kv-file-dir', directory, *flags, model=o.model) as second:
            told(report, 'the file tier, after kill -9', computed, [ask(second, ids) for ids in prompts], o)
    del held


def told(report, name, computed, found, o):
    times, cached = [f[0] for f in found], [f[1] for f in found]
    ratio = statistics.median(times) / statistics.median(computed)
    report.say(f'a prefix of {o.prefix} tokens from {name}: at most 0.2 times computing it', ratio <= 0.2 and min(cached) >= o.prefix,
               f'{ratio:.3f} ({statistics.median(times):.3f} s of {statistics.median(computed):.3f} s), {min(cached)} tokens cached')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('what', choices=['same', 'kills', 'routers', 'storm', 'prefix'])
    p.add_argument('--model', default=sides.TINY)
    p.add_argument('--seed', type=int, default=30)
    p.add_argument('--requests', type=int)
    p.add_argument('--kills', type=int, default=200)
    p.add_argument('--rounds', type=int, default=2)
    p.add_argument('--streams', type=int, default=16)
    p.add_argument('--stream-len', type=int, default=300)
    p.add_argument('--idle-s', type=float, default=15, help='of streams alone before the storm, and at least so long behind it')
    p.add_argument('--settle-s', type=float, default=5)
    p.add_argument('--speculate', default='auto', choices=['auto', 'off'])
    p.add_argument('--ways', help='of ' + '/'.join(WAYS))
    p.add_argument('--storm', type=int, default=6)
    p.add_argument('--storm-len', type=int, default=4096)
    p.add_argument('--slo', help='ttft:SECONDS,tpot:MS of a good request; else twice what one process takes that does nothing else')
    p.add_argument('--prefix', type=int, default=4096)
    p.add_argument('--threads', type=int, default=2)
    o = p.parse_args()
    o.requests = o.requests or (1000 if o.what == 'same' else 100)
    report = Report()
    print(f'seed {o.seed}, {lib.QUIRE}, {json.dumps({"model": o.model})}')
    {'same': check_same, 'kills': check_kills, 'routers': check_routers, 'storm': check_storm, 'prefix': check_prefix}[o.what](o, report)
    return 1 if report.failed else 0


if __name__ == '__main__':
    sys.exit(main())
