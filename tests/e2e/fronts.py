"""fronts.py - what must hold of a program before two workers, whichever it is: the same list for balancers (test_balancers.py) and routers (tools/check_routers.py).

A check is a function of a World: a front that was started before two servers of the bundled model. It raises where something is wrong. Standard library only.
"""
import atexit
import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time

from lib import PATIENCE, ROOT, Port, Server

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
MODEL = 'quire-tiny'
SAYS = [{'role': 'system', 'content': 'You tell short stories for children. '}, {'role': 'user', 'content': 'Tell me about a fox that lives in a wood.'}]
ROUTES = {
    'chat': ('/v1/chat/completions', {'messages': SAYS, 'max_tokens': 40, 'temperature': 0, 'logprobs': True, 'top_logprobs': 2}),
    'completions': ('/v1/completions', {'prompt': 'Once upon a time there was a girl named Lily who lived in a small house', 'max_tokens': 40, 'seed': 7}),
    'embeddings': ('/v1/embeddings', {'input': ['a fox in a wood', 'an owl']}),
}
LONG = {'temperature': 1, 'seed': 3, 'ignore_eos': True, 'max_tokens': 900}
# How many guesses were right would be told in `usage`.
WORKER = ('--kv-tokens', '16k', '--max-running', '8', '--max-waiting', '8', '--served-model-name', MODEL, '--speculate', 'off')


def wait_for(found, what, seconds=2):
    end = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < end:
        if found():
            return
        time.sleep(0.02)
    raise AssertionError('did not come: ' + what)


def same(body):
    """The body without what differs between two answers of one server: ids and times."""
    return re.sub(rb'"(id|created|request_id)":\s*("[^"]*"|\d+)', rb'"\1":0', body)


class Reply:
    """An answer on a connection of its own, read as it comes: .body is what has come of it."""

    def __init__(self, port, path, body=None, seconds=60):
        self.raw, self.ended = b'', False
        self.socket = socket.create_connection(('127.0.0.1', port), timeout=seconds)
        data = b'' if body is None else json.dumps({'model': MODEL, **body}).encode()
        head = f'{"GET" if body is None else "POST"} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n'
        self.socket.sendall(f'{head}Content-Length: {len(data)}\r\n\r\n'.encode() + data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def more(self, seconds):
        """Reads what is there within so long; False: nothing was."""
        if self.ended or not select.select([self.socket], [], [], seconds)[0]:
            return False
        data = self.socket.recv(1 << 16)
        self.raw, self.ended = self.raw + data, not data
        return bool(data)

    def whole(self):
        while not self.ended:
            assert self.more(60) or self.ended, 'nothing came for a minute'
        self.socket.close()
        return self

    @property
    def head(self):
        lines = self.raw.split(b'\r\n\r\n', 1)[0].decode().split('\r\n')
        return {'status': int(lines[0].split()[1]), **{k.lower(): v.strip() for k, v in (line.split(':', 1) for line in lines[1:])}}

    @property
    def status(self):
        return self.head['status']

    @property
    def body(self):
        raw = self.raw.split(b'\r\n\r\n', 1)[1] if b'\r\n\r\n' in self.raw else b''
        if not raw or self.head.get('transfer-encoding') != 'chunked':
            return raw
        out = b''
        while b'\r\n' in raw:
            size, raw = raw.split(b'\r\n', 1)
            out, raw = out + raw[:int(size, 16)], raw[int(size, 16) + 2:]
        return out


def ask(port, path, body=None):
    with Reply(port, path, body) as reply:
        return reply.whole()


def prompt_of(number):
    """A request for a few tokens that begins like no other."""
    path, body = ROUTES['chat']
    return path, {**body, 'max_tokens': 8, 'messages': [{'role': 'user', 'content': f'{number * 1000003 % 997} times {number}: tell me about so many foxes.'}]}


class World:
    """Two workers and a front before them, started when a test wants them first, ended with the program. start: a function of (folder, ports of the workers, port
    of the front) that gives a command. asks: the paths that the front asks of workers by itself. each: options of worker i."""

    def __init__(self, start, asks=(), each=lambda i: (), env=None):
        self.start, self.asks, self.each, self.env = start, set(asks), each, env
        self.stack, self.front = contextlib.ExitStack(), None
        atexit.register(self.stack.close)

    def begun(self):
        if self.front is None:
            self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix='quire-front-'))
            self.held, self.front_held = [Port(), Port()], Port()
            self.port = self.front_held.number
            command = self.start(self.folder, [p.number for p in self.held], self.port)
            self.workers = [self.work(i, wait=False) for i in range(2)]
            for w in self.workers:
                w.until_ready()
            self.begin(command)
        return self

    def work(self, i, wait=True):
        """Worker i is started, at its port."""
        return self.stack.enter_context(Server(*WORKER, *self.each(i), '--access-log', self.access_log(i), model=TINY, held=self.held[i], wait=wait))

    def access_log(self, i):
        return os.path.join(self.folder, f'access.{i}')

    def begin(self, command):
        self.log = self.stack.enter_context(open(os.path.join(self.folder, 'front.log'), 'w+b'))
        self.front = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=self.folder, env={**os.environ, **(self.env or {})})
        self.stack.callback(self.end)
        path, body = ROUTES['chat']
        wait_for(lambda: self.answers(path, {**body, 'max_tokens': 1}), 'an answer of the front', 30)

    def answers(self, path, body):
        assert self.front.poll() is None, self.front_log()
        try:
            return ask(self.port, path, body).status == 200
        except (OSError, IndexError):
            return False

    def end(self):
        self.front.terminate()
        try:
            self.front.wait(10)
        except subprocess.TimeoutExpired:
            self.front.kill()
            self.front.wait()

    def front_log(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode('utf-8', 'replace')[-3000:]

    def direct(self, path, body):
        """What each of the workers answers; their caches have it then."""
        return [ask(w.port, path, body) for w in self.workers]

    def counted(self, name, workers=None):
        """A counter of both workers together, or of these."""
        text = ''.join(ask(w.port, '/metrics').body.decode() for w in workers or self.workers)
        assert name in text, (name, text[:200])
        return sum(float(line.rsplit(' ', 1)[1]) for line in text.split('\n') if line.startswith(name))

    def asked(self):
        """(path without its query, status) of every request that a worker has had."""
        for i in range(2):
            with open(self.access_log(i), encoding='utf-8') as f:
                for line in f:
                    entry = json.loads(line)
                    yield (entry['path'] or '').split('?')[0], entry['status']

    @contextlib.contextmanager
    def standing(self):
        """Both workers stand still meanwhile."""
        for w in self.workers:
            w.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for w in self.workers:
                w.process.send_signal(signal.SIGCONT)


CHECKS = []


def check(f):
    CHECKS.append(f)
    return f


def asked_through(w, name, **more):
    """The answers of the front and of a worker, each with the prompt in its cache."""
    path, body = ROUTES[name]
    body = {**body, **more}
    w.direct(path, body)
    return ask(w.port, path, body), w.direct(path, body)


@check
def answers_are_the_bytes_of_a_worker(w):
    for name in ROUTES:
        got, direct = asked_through(w, name)
        assert got.status == 200 and got.head['content-type'] == direct[0].head['content-type'], (name, got.raw)
        assert same(direct[0].body) == same(direct[1].body) == same(got.body), (name, direct[0].body, got.body)


@check
def streams_are_the_bytes_of_a_worker(w):
    for name in ROUTES:
        if name == 'embeddings':
            continue
        got, direct = asked_through(w, name, stream=True, stream_options={'include_usage': True})
        assert got.status == 200 and got.head['content-type'].startswith('text/event-stream'), got.raw
        assert same(direct[0].body) == same(got.body) and got.body.endswith(b'data: [DONE]\n\n'), (name, direct[0].body, got.body)


@check
def events_come_one_by_one(w):
    """When the workers stand still, what has come are whole events, from the first one on: nothing is kept back until a buffer is full."""
    path, body = ROUTES['chat']
    with Reply(w.port, path, {**body, **LONG, 'stream': True}) as reply:
        for _ in range(3):
            before = reply.body.count(b'\n\n')
            while reply.body.count(b'\n\n') == before:
                assert reply.more(60), 'it ended, or nothing came for a minute'
            with w.standing():
                while reply.more(0.15):
                    pass
                assert not reply.ended and reply.body.endswith(b'\n\n'), reply.body[-300:]
        assert reply.whole().body.endswith(b'data: [DONE]\n\n')


@check
def a_request_ends_when_its_client_leaves(w):
    path, body = ROUTES['chat']
    aborted = 'vllm:request_success_total{model_name="%s",engine="0",finished_reason="abort"}' % MODEL
    for stream in (True, False):
        before = w.counted(aborted)
        with Reply(w.port, path, {**body, **LONG, 'stream': stream, 'n': 8}) as reply:
            if stream:
                assert reply.more(60)
            else:
                wait_for(lambda: w.counted('quire_requests_inside') == 1, 'the request at a worker')
            with w.standing():
                reply.socket.close()
                time.sleep(0.1)  # until the front has seen it
        wait_for(lambda: w.counted('quire_requests_inside') == 0, 'the end of the request')
        assert w.counted(aborted) == before + 1, (stream, w.front_log())


@check
def a_full_worker_is_429_with_the_time_to_wait(w):
    path, body = ROUTES['chat']
    with contextlib.ExitStack() as stack:
        for worker in 2 * w.workers:  # at each as many run, and as many wait, as may
            stack.enter_context(Reply(worker.port, path, {**body, **LONG, 'n': 8}))
        wait_for(lambda: w.counted('quire_requests_inside') == 4, 'four requests at the workers')
        got, refused = ask(w.port, path, body), w.direct(path, body)
    assert [got.status, *(r.status for r in refused)] == [429, 429, 429] and int(got.head['retry-after']) > 0, got.raw
    assert got.body == refused[0].body, got.body
    wait_for(lambda: w.counted('quire_requests_inside') == 0, 'their end')


@check
def prompts_that_begin_alike_go_where_they_are_cached(w):
    path, body = ROUTES['chat']
    for group in range(6):
        says = [{'role': 'system', 'content': f'Story {group * 7919}. ' + 'You tell short stories of animals for small children. ' * 8}]
        used = [json.loads(ask(w.port, path, {**body, 'max_tokens': 1, 'messages': [*says, {'role': 'user', 'content': f'{i} A fox?'}]}).body)['usage']
                for i in range(2)]
        cached = used[1]['prompt_tokens_details']['cached_tokens']
        assert cached >= used[1]['prompt_tokens'] - 64, (group, used)


def keep_asking(w, replies, end, first):
    """Requests, one after the other, each with a prompt of its own."""
    for number in itertools.takewhile(lambda _: not end.is_set(), itertools.count(first)):
        replies.append(ask(w.port, *prompt_of(number)))


@contextlib.contextmanager
def ending(w):
    """What wants this world next starts another."""
    try:
        yield
    finally:
        w.stack.close()
        w.front = None


@check
def what_it_asks_of_a_worker_is_there(w):
    wait_for(lambda: w.asks <= {path for path, status in w.asked() if status == 200}, f'requests for {sorted(w.asks)}')
    assert not {status for _, status in w.asked()} & {401, 403, 404, 405}, sorted(set(w.asked()))


@check
def a_worker_that_drains_costs_no_request(w):
    with ending(w), concurrent.futures.ThreadPoolExecutor(4) as pool:
        end, replies = threading.Event(), []
        asking = [pool.submit(keep_asking, w, replies, end, k * 10000) for k in range(4)]
        try:
            wait_for(lambda: len(replies) >= 8, 'answers before the drain', 20)
            w.workers[0].process.send_signal(signal.SIGTERM)
            assert w.workers[0].process.wait(60) == 0
            n = len(replies)
            wait_for(lambda: len(replies) >= n + 8, 'answers behind the drain', 20)
        finally:
            end.set()
        for a in asking:
            a.result()
        assert all(r.status == 200 for r in replies), [r.raw for r in replies if r.status != 200][:1]


@check
def a_worker_that_is_killed_costs_no_later_request(w):
    with ending(w):
        w.workers[1].process.kill()
        w.workers[1].process.wait()
        replies = [ask(w.port, *prompt_of(k)) for k in range(8)]
        assert all(r.status == 200 for r in replies), [r.raw for r in replies if r.status != 200][:1]


def tests_of(w, name, without=()):
    """The checks as tests of this world, named after both."""
    return {f'test_{name}_{f.__name__}': lambda f=f: f(w.begun()) for f in CHECKS if f not in without}
