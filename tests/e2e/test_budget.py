#!/usr/bin/env python3
"""What requests may make a server hold: bodies of many shapes against memory limits of control groups. What is charged is compared with what the system says
in tests/http/test_life.py."""
import concurrent.futures
import json
import os
import random
import socket
import subprocess
import time

from lib import QUIRE, ROOT, SLOW, Server, Skip, environment, main

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
MIB = 2 ** 20


class ControlGroup:
    """A memory limit for what is started with `before` (v1 or v2); Skip where none can be made."""

    def __init__(self, limit):
        name = f'quire-test-{os.getpid()}'
        v1, v2 = '/sys/fs/cgroup/memory', '/sys/fs/cgroup'
        old = os.path.isdir(v1)
        self.path = os.path.join(v1 if old else v2, name)
        try:
            if not old:
                with open(os.path.join(v2, 'cgroup.subtree_control'), 'w', encoding='ascii') as f:
                    f.write('+memory')
            os.mkdir(self.path)
            with open(os.path.join(self.path, 'memory.limit_in_bytes' if old else 'memory.max'), 'w', encoding='ascii') as f:
                f.write(str(limit))
        except OSError as e:
            if os.path.isdir(self.path):
                os.rmdir(self.path)
            raise Skip(f'no control group with a memory limit can be made here: {e}') from e
        self.before = ['/bin/sh', '-c', f'echo $$ > {self.path}/cgroup.procs && exec "$@"', 'sh']

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return
            except OSError:  # its last process is not gone yet
                time.sleep(0.05)
        raise AssertionError(f'{self.path} cannot be removed')


def body(**fields):
    return json.dumps({'model': 'quire-tiny', 'max_tokens': 1, 'temperature': 0, **fields}, separators=(',', ':')).encode()


def shapes():
    """Bodies of 0.5 to 4 MB: what is ignored, refused, far too long, or wanted, in many pieces and in few."""
    ones = [1] * 250000
    text = 'Once upon a time. ' * 30000
    message = {'role': 'user', 'content': 'hi'}
    chat, completions = '/v1/chat/completions', '/v1/completions'
    return [
        (completions, body(prompt='x', metadata=ones)),
        (completions, body(prompt='x', unknown=[[[]]] * 150000)),
        (completions, body(prompt='x', metadata={f'k{i}': i for i in range(40000)})),
        (completions, body(prompt=ones)),
        (completions, body(prompt=[[1] * 900] * 4, logprobs=20, echo=True, metadata='m' * 600000)),
        (completions, body(prompt=text)),
        (completions, body(prompt=['a' * 4000] * 128)),
        (completions, body(prompt='x', stop=['s' * 200] * 3000)),
        (completions, body(prompt='x', user='u' * 3900000)),
        (chat, body(messages=[message] * 16000)),
        (chat, body(messages=[{'role': 'user', 'content': text}])),
        (chat, body(messages=[message], tools=[{'type': 'function', 'function': {'name': f'f{i}', 'description': 'd' * 50}} for i in range(5000)])),
        (chat, body(messages=[message], documents=[{'text': 't' * 1000}] * 800)),
        (chat, body(messages=[message], prediction={'type': 'content', 'content': text})),
        ('/v1/embeddings', body(input=[[1, 2, 3]] * 2048, metadata=ones)),
        ('/tokenize', body(prompt=text * 3, return_token_strs=True)),
        ('/detokenize', body(tokens=ones * 3)),
    ]


def begin(port, path, data):
    """A connection that has sent one request."""
    s = socket.create_connection(('127.0.0.1', port), timeout=120 * SLOW)
    head = f'POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n'
    try:
        s.sendall(head.encode() + data)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused by its head: the answer is there
    return s


def ask(port, path, data):
    """The status of one request, its error, and whether it may be tried again."""
    answer = b''
    with begin(port, path, data) as s:
        while chunk := s.recv(1 << 16):
            answer += chunk
    head, _, rest = answer.partition(b'\r\n\r\n')
    status = int(head.split()[1])
    return status, None if status == 200 else json.loads(rest)['error'], b'retry-after' in head.lower()


def flood(s, n, seed):
    """n bodies at once, in no order; every one is answered, and what is refused hears why."""
    kinds = shapes()
    order = [kinds[i % len(kinds)] for i in range(n)]
    random.Random(seed).shuffle(order)
    seen = {}
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        answers = list(pool.map(lambda job: ask(s.port, *job), order))
    for status, error, retry in answers:
        seen[status] = seen.get(status, 0) + 1
        assert status in (200, 400, 413, 429, 503), (status, error)
        assert status not in (429, 503) or (retry and error['code'] in ('overloaded', 'queue_full')), error
        assert status != 503 or 'memory' in error['message'], error
    assert s.process.poll() is None, s.stderr()
    return dict(sorted(seen.items()))


def anonymous_bytes(pid):
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith('RssAnon'))


def metric(s, name):
    return next(float(line.rsplit(' ', 1)[1]) for line in s.get('/metrics')[1].splitlines() if line.startswith(name + '{'))


def test_large_bodies_of_any_shape_end_no_server_that_has_a_memory_limit():
    if 'asan' in QUIRE:
        raise Skip('a sanitizer keeps memory of its own')
    for limit in (150, 512, 1024) if os.environ.get('QUIRE_FULL') else (150,):
        with ControlGroup(limit * MIB) as group, Server(model=TINY, before=group.before) as s:
            seen = flood(s, 200, limit)
            status, r = s.post('/v1/completions', {'model': 'quire-tiny', 'prompt': 'a', 'max_tokens': 4})
            assert status == 200 and metric(s, 'quire_requests_bytes') == 0, r
            print(f'   {limit} MiB: {seen}; {anonymous_bytes(s.process.pid) / MIB:.0f} MiB afterwards')


def test_a_start_without_memory_ends_with_5_and_the_reason_whatever_the_limit():
    if 'asan' in QUIRE:
        raise Skip('asan takes terabytes of addresses')
    commands = {'generate': ['--prompt', 'a', '-n', '1'], 'check': [], 'plan': [], 'score': [], 'tokenize': []}
    jobs = [(kib, [c, '--model', TINY, *rest] if c != 'check' else [c, TINY]) for kib in range(16000, 128000, 7000) for c, rest in commands.items()]

    def start(job):
        kib, args = job
        p = subprocess.run(['/bin/sh', '-c', f'ulimit -v {kib}; exec "$@"', 'sh', QUIRE, *args], stdin=subprocess.DEVNULL, capture_output=True,
                           env=environment(None), timeout=60, check=False)
        return job, p.returncode, (p.stderr or p.stdout).decode()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(start, jobs))
    for job, rc, text in ends:
        assert rc in (0, 5) and (rc == 0 or any(word in text for word in ('memory', 'fit', 'ulimit'))), (job, rc, text)
    assert {rc for _, rc, _ in ends} == {0, 5}


# Prompts of ids, text that stop strings are, room for choices, and what is not read at all.
HELD = {
    'prompts': body(prompt=[[5] * 900] * 120, stream=True),
    'stop strings': body(prompt=['a'] * 60, stop=['s' * 200] * 16, n=2),
    'choices': body(prompt=[[5] * 600] * 15, n=8, echo=True, stream=True, return_token_ids=True),
    'ignored fields': body(prompt=[[5] * 900] * 120, metadata=[1] * 100000),
}


def wait_until(condition):
    end = time.monotonic() + 60 * SLOW
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_what_waiting_requests_are_charged_is_what_the_system_says_within_a_quarter():
    """Others are computed meanwhile, one after the other. Answers that nobody reads: tests/http/test_life.py."""
    if SLOW > 1:
        raise Skip('a sanitizer keeps memory of its own')
    long = body(prompt='x', ignore_eos=True, n=8, stream=True).replace(b'"max_tokens":1', b'"max_tokens":1000')
    for what, data in HELD.items():
        with Server('--max-running', '1', '--max-waiting', '10000', '--kv-tokens', '1024', '--max-len', '1024', model=TINY) as s:
            first = [begin(s.port, '/v1/completions', long) for _ in range(8)]
            wait_until(lambda: metric(s, 'quire_calls') == 8)
            time.sleep(0.5)
            before = anonymous_bytes(s.process.pid)
            held = [begin(s.port, '/v1/completions', data) for _ in range(30)]
            wait_until(lambda: metric(s, 'quire_submitted_requests_total') == 8 + 30 * len(json.loads(data)['prompt']))
            time.sleep(0.5)  # what is free goes back to the system
            charged, used = metric(s, 'quire_requests_bytes'), anonymous_bytes(s.process.pid) - before
            print(f'   {what}: charged {charged / MIB:.1f} MiB, used {used / MIB:.1f} MiB')
            assert charged > 10 * MIB and 0.75 * used <= charged <= 1.25 * used, (what, charged, used)
            for c in held + first:
                c.close()


if __name__ == '__main__':
    main(globals())
