"""What operators see of the real server: its state under load, `quire profile`, and that both keep to themselves what is not theirs."""
import json
import os
import pty
import signal
import subprocess
import tempfile
import threading
import time

import lib
from lib import QUIRE, ROOT, Port, Server, environment, run

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
ADMIN = {'Authorization': 'Bearer the-admin-key'}
LIMITS = ['--max-running', '3', '--kv-tokens', '2048', '--max-len', '512', '--api-key', 'a-user-key', '--admin-key', 'the-admin-key']


# What a load shows sooner or later.
SEEN = {'shared': lambda v: v['blocks']['shared'], 'cached': lambda v: v['blocks']['cached'], 'waiting': lambda v: v['use']['waiting'],
        'backlog': lambda v: v['use']['backlog_ms'], 'owners': lambda v: len(v['blocks']['owners']) >= 3,
        'prefill or decode': lambda v: any(r['state'] != 'waiting' and r['blocks'] for r in v['requests'])}


def load(s, n, stop):
    """n clients that ask again and again, each under a salt of its own, every second one with the same beginning."""
    def client(i):
        while not stop.is_set():
            prompt = ('Once upon a time there was a girl named Lily who lived in a small house. ' if i % 2 else f'{i} boys and {i} dogs ') * 4
            s.post('/v1/completions', {'prompt': f'{prompt}plugh{i}', 'max_tokens': 60, 'ignore_eos': True, 'cache_salt': f'salt{i // 2}', 'n': 1 + i % 2 * 2},
                   {'Authorization': 'Bearer a-user-key'})
    threads = [threading.Thread(target=client, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    return threads


def test_the_state_under_load_adds_up_and_a_profile_of_it_nests():
    stop = threading.Event()
    with Server(*LIMITS, model=TINY) as s, tempfile.TemporaryDirectory() as d:
        threads = load(s, 6, stop)
        try:
            states, unseen, end = [], dict(SEEN), time.monotonic() + 60 * lib.SLOW
            while (unseen or len(states) < 20 // lib.SLOW) and time.monotonic() < end:
                status, body = s.get('/v1/ops/state', ADMIN)
                assert status == 200 and 'plugh' not in body and 'salt' not in body and '-key' not in body, body
                states.append(json.loads(body))
                unseen = {name: seen for name, seen in unseen.items() if not seen(states[-1])}
            assert not unseen, list(unseen)
            for v in states:
                b = v['blocks']
                assert b['total'] == v['limits']['n_blocks'] == b['free'] + b['cached'] + b['used'] + b['shared'] == sum(r[0] for r in b['map']), b
                for letter, name in (('f', 'free'), ('c', 'cached'), ('u', 'used'), ('s', 'shared')):
                    assert sum(r[0] for r in b['map'] if r[1] == letter) == b[name], (name, b)
                assert len(v['requests']) <= 6 and sum(r['state'] != 'waiting' for r in v['requests']) <= 3, v['requests']
                assert sum(r['blocks'] for r in v['requests']) >= b['shared'], v['requests']
                for r in v['requests']:
                    assert r['done_tokens'] <= r['prompt_tokens'] and r['output_tokens'] <= 60 * r['choices'] and r['id'].startswith('cmpl-'), r
            out = os.path.join(d, 'trace.json')
            url = f'http://127.0.0.1:{s.port}'
            rc, text, err = run('profile', '--seconds', str(0.5 * lib.SLOW), '--out', out, '--url', url, '--api-key', 'the-admin-key')
            assert rc == 0 and text == '' and ' steps, ' in err and out in err, (rc, text, err)
            with open(out, encoding='utf-8') as f:
                body = f.read()
            assert 'plugh' not in body and 'salt' not in body and '-key' not in body
            trace = json.loads(body)
            steps = sorted((e['ts'], e['ts'] + e['dur']) for e in trace['traceEvents'] if e['name'] == 'step')
            phases = sorted((e['ts'], e['ts'] + e['dur']) for e in trace['traceEvents'] if e['ph'] == 'X' and e['name'] != 'step')
            assert len(steps) == trace['otherData']['steps'] > 1 and all(a[1] <= b[0] for a, b in zip(steps, steps[1:]))
            assert all(any(t[0] <= p[0] and p[1] <= t[1] for t in steps) for p in phases) and len(phases) > len(steps)
            assert sum(e['ph'] == 'b' for e in trace['traceEvents']) == sum(e['ph'] == 'e' for e in trace['traceEvents']) > 0
            rc, text, err = run('profile', '--seconds', '0.1', '--out', '-', '--url', url, env={'OPENAI_API_KEY': 'the-admin-key'})
            assert rc == 0 and json.loads(text)['otherData']['us'] >= 100000, (rc, err)
        finally:
            stop.set()
            for t in threads:
                t.join()
        v = json.loads(s.get('/v1/ops/state', ADMIN)[1])
        assert v['requests'] == [] and v['use']['running'] == v['use']['waiting'] == v['use']['backlog_ms'] == 0 and v['rates']['output_tokens_s'] > 0
        assert v['blocks']['used'] == v['blocks']['shared'] == 0 < v['blocks']['cached'] and sum(v['ttft_ms']['n']) > 0 and sum(v['itl_ms']['n']) > 0


def test_a_profile_says_how_long_it_takes_and_one_that_fails_why_and_leaves_no_file():
    closed = Port()
    with Server(*LIMITS, model=TINY) as s, tempfile.TemporaryDirectory() as d:
        url, out = f'http://127.0.0.1:{s.port}', os.path.join(d, 'trace.json')
        for args, status, word in ((['--url', url], 1, '--api-key'), (['--url', url, '--api-key', 'a-user-key'], 1, 'admin'),
                                   (['--url', f'http://127.0.0.1:{closed.number}'], 3, 'cannot connect'), (['--seconds', '61'], 2, '--seconds'),
                                   (['5'], 2, '--seconds'), (['--url', 'ftp://x'], 2, 'ftp')):
            rc, text, err = run('profile', '--out', out, *args)
            assert rc == status and word in err and text == '' and not os.path.exists(out), (args, rc, err)
        rc, _, err = run('profile', '--seconds', '0.1', '--out', '/nonexistent/x.json', '--url', url, '--api-key', 'the-admin-key')
        assert rc == 4 and '/nonexistent/x.json' in err, (rc, err)
        master, slave = pty.openpty()
        p = subprocess.run([QUIRE, 'profile', '--seconds', '1.4', '--out', out, '--url', url, '--api-key', 'the-admin-key'], env=environment(None), stderr=slave)
        os.close(slave)
        seen = os.read(master, 65536).decode()
        os.close(master)
        assert p.returncode == 0 and 'recording ' in seen and ' left' in seen, seen
        os.remove(out)
        p = subprocess.Popen([QUIRE, 'profile', '--out', out, '--url', url, '--api-key', 'the-admin-key'], env=environment(None), stderr=subprocess.PIPE)
        time.sleep(0.3 * lib.SLOW)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=30)
        assert p.returncode in (-signal.SIGINT, 130) and not os.path.exists(out), p.returncode


lib.main(globals())
