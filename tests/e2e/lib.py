"""lib.py - what the whole-program tests share: the program, the data, running commands, running a server, counting.

Standard library only. A test is a function whose name begins with test_; its name is a true sentence. main(globals()) runs them all and
prints a closing line that tools/count_tests.awk adds up.
"""
import concurrent.futures
import functools
import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..'))
QUIRE = os.environ.get('QUIRE_BIN') or os.path.join(ROOT, 'build', 'quire')
DATA = os.environ.get('QUIRE_DATA') or os.path.join(ROOT, '..', 'shared', 'data')
STORIES = os.path.join(DATA, 'models', 'stories260K')
SLOW = 4 if 'asan' in QUIRE else 1  # a sanitizer build gets more time
# What is promised within so long may take ten times that, as a busy machine may stop a test for a second; with QUIRE_TEST_TIMING=1, on one that does nothing
# else, the promise itself is asked for (docs/testing.md).
PATIENCE = SLOW * (1 if os.environ.get('QUIRE_TEST_TIMING') else 10)


signal.signal(signal.SIGHUP, lambda *_: None)  # not ignored by what is started from here, as it is under nohup


class Skip(Exception):
    """Raised by a test that cannot run here; the reason is printed."""


def release_only(test):
    """Of a test whose code smaller tests run under the sanitizers: there it costs several times as much and finds nothing more."""
    @functools.wraps(test)
    def run_or_skip():
        if SLOW > 1:
            raise Skip('smaller tests run this sanitized')
        test()
    return run_or_skip


def need_data(path=STORIES):
    if not os.path.exists(path):
        raise Skip(f'no conformance data (QUIRE_DATA): {path}')


def jsonl(path):
    with open(path, encoding='utf-8', newline='\n') as f:
        return [json.loads(line) for line in f.read().split('\n') if line]


ALONE = {'THREADS': '1'}
MODEL = {**ALONE, 'DEVICE': 'cpu', 'PIN': 'false'}
SETTINGS = {'': MODEL, 'GENERATE_': MODEL, 'SCORE_': MODEL, 'PLAN_': MODEL, 'QUANTIZE_': ALONE, 'BENCH_KERN_': ALONE, 'BENCH_OPEN_': ALONE, 'BENCH_STEP_': ALONE,
            'BENCH_THROUGHPUT_': {**ALONE, 'DEVICE': 'cpu'}, 'BENCH_TRAIN_': ALONE, 'BENCH_TUNE_': ALONE}


def environment(env):
    """Ours without settings of quire's; a GPU, or a library for one without its driver, is not what these tests are about. One thread: models of a few hundred
    thousand weights are no faster with more, and threads that wait for each other by looking take the processor from whatever test runs beside this one."""
    ours = {f'QUIRE_{command}{name}': value for command, settings in SETTINGS.items() for name, value in settings.items()}
    ours['HF_HUB_OFFLINE'] = '1'  # no test reaches for a network, but those with a hub of their own
    return {**{k: v for k, v in os.environ.items() if not k.startswith('QUIRE_')}, **ours, **(env or {})}


def run(*args, stdin='', env=None, timeout=300):
    """Runs quire; returns (exit status, stdout, stderr)."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    p = subprocess.run([QUIRE, *args], input=stdin, capture_output=True, timeout=timeout * SLOW, env=environment(env), check=False)
    return p.returncode, p.stdout.decode('utf-8', 'replace'), p.stderr.decode('utf-8', 'replace')


def run_lines(*args, lines, timeout=300):
    """Feeds JSON lines, returns the JSON lines that came back; fails when the exit status is not 0."""
    rc, out, err = run(*args, stdin='\n'.join(json.dumps(l) for l in lines) + '\n', timeout=timeout)
    assert rc == 0, f'exit {rc}: {err[-800:]}'
    return [json.loads(l) for l in out.split('\n') if l]


def levels():
    """The instruction-set levels of this machine, the best one last. The program is asked, as a supervisor may hide what /proc/cpuinfo names."""
    found = []
    for level in ('ref', 'avx2', 'avx512', 'amx'):
        rc, _, err = run('score', '--model', os.path.join(ROOT, 'models', 'quire-tiny'), '--isa', level)
        assert rc == 0 or 'does not have it; the best here is' in err, err
        found += [level] if rc == 0 else []
    return found


def another_order(n_in):
    """Options of a run whose results show how far another order of additions moves results of f32, and a factor for how far they do. Levels differ in nothing
    but that order; where ref is alone it is order_moves() of tests/levels.h, with n_in inputs of the widest product."""
    return (['--dtype', 'f32', '--isa', 'ref'], 1) if len(levels()) > 1 else (['--dtype', 'bf16'], math.sqrt(2 * n_in) * 2.0 ** -16)


def program_seconds(n=5):
    """What starting the program takes here, at best: a yardstick for what a start with a model takes."""
    best = float('inf')
    for _ in range(n):
        began = time.monotonic()
        run('--version')
        best = min(best, time.monotonic() - began)
    return best


def until_within(limit, measure, tries=20):
    """The least of up to `tries` measurements; no more of them once one is within the limit. Neighbours on the machine only ever add."""
    best = measure()
    for _ in range(tries - 1):
        if best <= limit:
            break
        time.sleep(0.2)
        best = min(best, measure())
    return best


class Port:
    """A port of loopback that nobody else is given while this object lives: its socket is bound and does not listen, and a server that says SO_REUSEADDR, as
    quire does, may bind it beside that. Without a server a connection to it is refused."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(('127.0.0.1', 0))
        self.number = self.socket.getsockname()[1]

    def __del__(self):
        self.socket.close()


def gone(pid):
    """Ended, or a zombie that only waits to be asked."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii') as f:
            return f.read().rsplit(')', 1)[1].split()[0] == 'Z'
    except OSError:
        return True


class Server:
    """`quire serve` on loopback; ready when entered, ended by its process id when left. before: what runs it, such as nohup. held: the port it is to have."""

    def __init__(self, *args, model=STORIES, wait=True, env=None, before=(), held=None):
        self.held = held or Port()
        self.port = self.held.number
        self.log = tempfile.TemporaryFile()
        self.started = time.monotonic()
        self.process = subprocess.Popen([*before, QUIRE, 'serve', '--model', model, '--port', str(self.port), *args], stdout=subprocess.DEVNULL,
                                        stderr=self.log, env=environment(env))
        self.wait = wait

    def __enter__(self):
        if self.wait:
            self.until_ready()
        return self

    def until_ready(self, seconds=120, poll_s=0.01):
        end = time.monotonic() + seconds * SLOW
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f'the server ended with {self.process.returncode}: {self.stderr()}')
            try:
                if self.get('/readyz')[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(poll_s)
        raise AssertionError('the server was not ready in time: ' + self.stderr())

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60 * SLOW)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError('the server did not end within 60 s of SIGTERM')
        text = self.stderr()
        assert 'Sanitizer' not in text and 'runtime error' not in text, text[-3000:]

    def stderr(self):
        return os.pread(self.log.fileno(), 1 << 26, 0).decode('utf-8', 'replace')  # nobody's place in the file is moved

    def connect(self, timeout=60):
        return http.client.HTTPConnection('127.0.0.1', self.port, timeout=timeout * SLOW)

    def get(self, path, headers=None):
        c = self.connect()
        c.request('GET', path, headers=headers or {})
        r = c.getresponse()
        body = r.read()
        c.close()
        return r.status, body.decode()

    def post(self, path, body, headers=None):
        """Posts JSON; returns (status, parsed body)."""
        c = self.connect()
        c.request('POST', path, json.dumps(body), {'Content-Type': 'application/json', **(headers or {})})
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r.status, json.loads(text)

    def stream(self, path, body, headers=None):
        """Posts with stream: true; yields the parsed data of each event up to [DONE]."""
        c = self.connect()
        c.request('POST', path, json.dumps({**body, 'stream': True}), {'Content-Type': 'application/json', **(headers or {})})
        r = c.getresponse()
        assert r.status == 200, r.read()
        assert r.getheader('Content-Type', '').startswith('text/event-stream'), r.getheader('Content-Type')
        done = False
        for line in r:
            line = line.decode().rstrip('\r\n')
            if line == 'data: [DONE]':
                done = True
            elif line.startswith('data: '):
                assert not done, 'an event behind [DONE]'
                yield json.loads(line[6:])
        c.close()
        assert done, 'the stream ended without [DONE]'


def run_test(name, test):
    """Says how it ended, and returns that."""
    began = time.monotonic()
    try:
        test()
        print(f'ok   {name} ({time.monotonic() - began:.2f} s)\n', end='', flush=True)
        return 'passed'
    except Skip as reason:
        print(f'SKIP {name}: {reason}\n', end='', flush=True)
        return 'skipped'
    except Exception:
        print(f'FAIL {name}\n{traceback.format_exc()}\n', end='', flush=True)
        return 'failed'


def main(tests, at_once=1):
    """Runs all tests, or those that the command line names; so many at once, where they mostly wait."""
    wanted = sys.argv[1:]
    chosen = [(name, test) for name, test in list(tests.items()) if name.startswith('test_') and (not wanted or name in wanted)]
    if at_once > 1:
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            ends = list(pool.map(run_test, *zip(*chosen)))
    else:
        ends = [run_test(name, test) for name, test in chosen]
    passed, failed, skipped = (ends.count(word) for word in ('passed', 'failed', 'skipped'))
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    sys.exit(1 if failed else 0)
