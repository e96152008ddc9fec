"""Goals and time limits of the real server: what it lets in is in time, and the rest hears so at once."""
import json
import threading
import time

import lib

PATH = '/v1/completions'
# Plain kernels on one thread: a token of four sequences takes a millisecond or more.
TINY = lib.os.path.join(lib.ROOT, 'models', 'quire-tiny')
SLOW = ['--isa', 'ref', '--threads', '1', '--max-running', '4', '--speculate', 'off']


def ask(s, i, max_tokens, **fields):
    """(status, Retry-After, body, seconds to the first byte of a stream)"""
    c = s.connect()
    began = time.monotonic()
    c.request('POST', PATH, json.dumps({'prompt': f'Once upon a time there were {i} cats who lived in a wood', 'max_tokens': max_tokens, 'ignore_eos': True,
                                        'stream': True, **fields}), {'Content-Type': 'application/json'})
    r = c.getresponse()
    first = time.monotonic() - began
    body = r.read().decode()
    c.close()
    return r.status, r.getheader('Retry-After'), body, first


def late(s):
    text = s.get('/metrics')[1]
    return {line.split('why="')[1].split('"')[0]: float(line.split()[-1]) for line in text.splitlines() if line.startswith('quire_requests_late_total{')}


def test_a_goal_refuses_what_would_be_late_and_lets_in_the_rest():
    lib.need_data()
    goal = 0.3
    with lib.Server(*SLOW, '--ttft-goal', f'{goal:g}s') as s:
        assert ask(s, 0, 3)[0] == 200, 'before anything was measured nothing is refused'
        for i in range(3):
            ask(s, i, 30)
        ends = []
        threads = [threading.Thread(target=lambda i=i: ends.append(ask(s, i, 400 // lib.SLOW))) for i in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        done, refused = [e for e in ends if e[0] == 200], [e for e in ends if e[0] in (429, 503)]
        assert len(done) >= 1 and len(done) + len(refused) == 24 and len(refused) >= 8, [e[0] for e in ends]
        for status, again, body, _ in refused:
            e = json.loads(body)['error']
            assert e['code'] == 'too_late' and int(again) >= 1 and 'the first token would come after about' in e['message'] and '--ttft-goal is 0.30 s' in e['message'], e
        counted = late(s)
        assert counted['refused'] + counted['shed'] == len(refused) and counted['refused'] >= 8 and counted['alone'] == 0, counted
        print(f'     {len(done)} let in, first bytes after {max(e[3] for e in done):.3f} s at most; {counted}')
        assert ask(s, 5, 3)[0] == 200, 'when nothing waits all are let in'


def test_what_cannot_be_finished_alone_is_refused_with_both_times():
    lib.need_data()
    with lib.Server(*SLOW, model=TINY) as s:
        for i in range(3):
            assert ask(s, i, 8)[0] == 200
        status, again, body, _ = ask(s, 1, 300, timeout=0.1)
        e = json.loads(body)['error']
        assert status == 400 and again is None and e['code'] == 'too_large', (status, body)
        assert '300 to be drawn would take about' in e['message'] and 'alone, and it may take 0.10 s (timeout).' in e['message'], e
        assert ask(s, 1, 20, timeout=3, ignore_eos=False)[0] in (200, 504), 'it may end by itself'
        assert ask(s, 1, 10, timeout=60)[0] == 200
        assert late(s)['alone'] == 1


if __name__ == '__main__':
    lib.main(globals())
