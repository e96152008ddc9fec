"""test_pair.py - prompts computed in one process and answered in another: the bytes of one process, whatever dies or lies in between. tools/check_pair.py asks
for more of the same."""
import os
import random
import re
import signal
import time

import lib
import mixed
import sides

SEED = int(os.environ.get('QUIRE_SEED', '20261129'))
N = 60


class Expected:
    """What one process says to the requests of this file, computed once."""
    todo = mixed.requests(N, SEED)
    outcomes = seconds = None

    @classmethod
    def get(cls):
        if cls.outcomes is None:
            print(f'     seed {SEED}')
            with lib.Server(model=sides.TINY) as one:
                cls.outcomes = mixed.run(one.port, cls.todo, at_once=1)
            cls.seconds = [o.seconds for o in cls.outcomes]
        return cls.todo, cls.outcomes


def in_time(seconds):
    """No answer took more than a second longer than without a peer: than four times the longest that any took alone, as four run at once."""
    bound = 4 * max(Expected.seconds) + lib.PATIENCE
    assert max(seconds) < bound, f'{max(seconds):.2f} s, expected at most {bound:.2f} s'


def test_requests_through_a_prefill_and_a_decode_process_equal_those_of_one():
    todo, expected = Expected.get()
    places, _held = sides.addresses()
    for name, address in places.items():
        with sides.Sides(address) as pair:
            ours = mixed.run(pair.d.port, todo)
            mixed.same(todo, ours, expected)
            assert pair.from_peer() > 0, 'nothing came from the peer'
            pair.consistent()
            print(f'     {name}: {pair.from_peer():.0f} prompt tokens of {mixed.metrics(pair.d.port)["vllm:prompt_tokens_total"]:.0f} came from the peer')


def test_a_side_that_is_killed_at_any_moment_costs_time_alone():
    todo, expected = Expected.get()
    todo = [r for r in todo if r.cancel_s is None]
    expected = [e for r, e in zip(Expected.todo, expected) if r.cancel_s is None]
    places, _held = sides.addresses()
    rng = random.Random(SEED)
    for address in places.values():
        with sides.Sides(address) as pair:
            longest, n = sides.ask_through_kills(pair, todo, expected, 4, 5, rng)
            print(f'     {n} answers, the longest after {max(longest):.2f} s')
            in_time(longest)
            pair.consistent()


def test_a_line_that_flips_bits_cuts_and_stalls_costs_time_alone():
    todo, expected = Expected.get()
    places, _held = sides.addresses()
    proxy = sides.Proxy(places['tcp'], SEED, flip_every=300000, cut_every=1000000, stall_every=3000000)
    with sides.Sides(places['tcp'], through=proxy.address) as pair:
        ours = mixed.run(pair.d.port, todo)
        mixed.same(todo, ours, expected)
        in_time([o.seconds for o in ours])
        pair.consistent()
    print(f'     {proxy.n}')
    assert proxy.n['bytes'] > 0
    proxy.close()


def children(pid):
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as f:
        return [int(n) for n in f.read().split()]


def until(what, seconds=30):
    end = time.monotonic() + seconds * lib.SLOW
    while not what():
        assert time.monotonic() < end, 'that did not come'
        time.sleep(0.02)


def started(server):
    """Process ids of the prefill processes that the log tells of, and their sockets' directory."""
    found = re.findall(r'the prefill process starts pid=(\d+) http=unix:(\S+)/http', server.stderr())
    return [int(pid) for pid, _ in found], found[0][1] if found else None


def begun(server):
    until(lambda: started(server)[0])
    return started(server)


def test_serve_pair_is_one_service_that_outlives_its_prefill_process():
    todo, expected = Expected.get()
    few, few_expected = todo[:20], expected[:20]
    with lib.Server('--pair', model=sides.TINY) as s:
        pids, directory = begun(s)
        until(lambda: os.path.exists(directory + '/http'))
        assert len(pids) == 1 and oct(os.stat(directory).st_mode)[-3:] == '700'
        mixed.same(few, mixed.run(s.port, few), few_expected)
        os.kill(pids[0], signal.SIGKILL)
        mixed.same(few, mixed.run(s.port, few), few_expected)
        until(lambda: len(started(s)[0]) == 2)
        until(lambda: mixed_metrics_or_none(directory + '/http'))
        mixed.same(few, mixed.run(s.port, few), few_expected)
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(30 * lib.SLOW) == 0, s.stderr()
        assert all(lib.gone(pid) for pid in started(s)[0]) and not os.path.exists(directory)
        modules = {line.split(' ')[2].split('/')[0] for line in s.stderr().split('\n') if re.match(r'\d{4}-', line)}
        assert 'prefill' in modules and 'server' in modules, modules


def mixed_metrics_or_none(path):
    try:
        return mixed.metrics(path)
    except OSError:
        return None


def test_a_pair_ends_with_the_process_that_decodes_however_that_ends():
    for sig, status in ((signal.SIGKILL, -9), (signal.SIGINT, 0)):
        with lib.Server('--pair', model=sides.TINY) as s:
            pids, directory = begun(s)
            keepers = children(s.process.pid)
            s.process.send_signal(sig)
            assert s.process.wait(30 * lib.SLOW) == status, s.stderr()
            until(lambda: all(lib.gone(pid) for pid in pids + keepers) and not os.path.exists(directory))
    for args, words in ((['--role', 'decode'], '--role'), (['--peer', 'unix:/x'], '--peer'), (['--peer-listen', 'unix:/x'], '--peer-listen'),
                        (['--tensor-parallel', '2'], '--tensor-parallel')):
        rc, _, err = lib.run('serve', '--pair', '--model', sides.TINY, *args)
        assert rc == 2 and words in err, (rc, err)


if __name__ == '__main__':
    lib.main(globals())
