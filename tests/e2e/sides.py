"""sides.py - a process that computes prompts and one that decodes, and what may lie between them: for test_pair.py and tools/check_pair.py. Standard library only."""
import os
import random
import socket
import tempfile
import threading
import time

import lib
import mixed

TINY = os.path.join(lib.ROOT, 'models', 'quire-tiny')


class Side(lib.Server):
    """A server that may be killed and started again with the same flags. socket: the path where it listens; else it is a port, another one each time."""

    def __init__(self, *args, socket=None, model=TINY, env=None, before=()):
        flags = [*args, '--unix-socket', socket] if socket else args
        self.path = socket
        self.again = lambda: lib.Server.__init__(self, *flags, model=model, env=env, before=before)
        self.again()

    @property
    def at(self):
        return self.path or self.port

    def connect(self, timeout=60):
        return mixed.connect(self.at, timeout * lib.SLOW)

    def kill(self):
        """As if it had never been asked to end."""
        self.process.kill()
        self.process.wait()

    def start_again(self):
        self.again()
        self.until_ready()


class Sides:
    """P, which listens for peers at an address, and D, which asks it there or where `through` says; ready when entered. more: flags of both; before: what runs
    P; sockets: P takes requests at a Unix socket, as in another network it has to."""

    def __init__(self, address, more=(), through=None, model=TINY, env=None, before=(), sockets=True):
        self.directory = tempfile.TemporaryDirectory(prefix='quire-sides-')
        socket_of_p = self.directory.name + '/http' if sockets else None
        self.p = Side('--role', 'prefill', '--peer-listen', address, *more, socket=socket_of_p, model=model, env=env, before=before)
        self.d = Side('--role', 'decode', '--peer', through or address, *more, model=model, env=env)

    def __enter__(self):
        self.p.until_ready()
        self.d.until_ready()
        return self

    def __exit__(self, *exc):
        self.d.__exit__(*exc)
        self.p.__exit__(*exc)

    def consistent(self):
        for side in (self.d, self.p):
            mixed.consistent(side.at)

    def from_peer(self):
        """Prompt tokens that D has got from P."""
        return labelled(self.d, 'vllm:prompt_tokens_by_source_total', 'external_kv_transfer')


def labelled(server, name, value):
    """The sample of that name with a label of that value."""
    return sum(float(line.rsplit(' ', 1)[1]) for line in server.get('/metrics')[1].split('\n') if line.startswith(name + '{') and f'"{value}"' in line)


def addresses():
    """One of each kind, of this machine, by their names, and what has to live as long. They are good for one pair at a time."""
    held = [tempfile.TemporaryDirectory(prefix='quire-pair-'), lib.Port()]
    return {'unix': f'unix:{held[0].name}/peers', 'tcp': f'127.0.0.1:{held[1].number}'}, held


class Proxy:
    """A port of loopback before another, with a mind of its own: what passes has bits flipped, is cut off, or stands still. Everything random comes from the seed."""

    def __init__(self, to, seed, flip_every=0, cut_every=0, stall_every=0, stall_s=1.5):
        self.to, self.rng = to, random.Random(seed)
        self.flip_every, self.cut_every, self.stall_every, self.stall_s = flip_every, cut_every, stall_every, stall_s
        self.n = {'bytes': 0, 'flipped': 0, 'cut': 0, 'stalled': 0}
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                ours, _ = self.listener.accept()
            except OSError:
                return
            host, port = self.to.rsplit(':', 1)
            try:
                theirs = socket.create_connection((host, int(port)), timeout=5)
            except OSError:
                ours.close()
                continue
            theirs.settimeout(None)
            for a, b in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self.pump, args=(a, b), daemon=True).start()

    def happens(self, every, n):
        """Whether something that happens once in so many bytes does so within n of them."""
        return every > 0 and self.rng.random() < n / every

    def spoil(self, data):
        """What becomes of the bytes: None for a cut."""
        with self.lock:
            self.n['bytes'] += len(data)
            if self.happens(self.flip_every, len(data)):
                self.n['flipped'] += 1
                at = self.rng.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << self.rng.randrange(8)]) + data[at + 1:]
            if self.happens(self.cut_every, len(data)):
                self.n['cut'] += 1
                return None
            stall = self.happens(self.stall_every, len(data))
            self.n['stalled'] += stall
        if stall:
            time.sleep(self.stall_s)
        return data

    def pump(self, a, b):
        try:
            while True:
                data = a.recv(65536)
                data = data and self.spoil(data)
                if not data:
                    break
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


def ask_through_kills(sides, todo, expected, at_once, n_kills, rng, pause_s=(0.02, 0.4)):
    """Sends the requests to D over and over, while sides are killed at random moments and started again. A request that was under way when D was killed is asked
    again; any other that does not end well, or with other bytes than expected, raises. Returns the longest that each took, and how often one was answered."""
    longest, n = [0.0] * len(todo), [0]
    left = list(range(len(todo)))
    lock, down, over = threading.Lock(), threading.Event(), threading.Event()
    errors = []

    def ask(i):
        generation, was_down = sides.d.process.pid, down.is_set()
        try:
            outcome = mixed.ask(sides.d.at, todo[i])
            mixed.same([todo[i]], [outcome], [expected[i]])
            with lock:
                longest[i] = max(longest[i], outcome.seconds)
                n[0] += 1
            return True
        except (OSError, AssertionError, mixed.http.client.HTTPException) as e:
            if not was_down and not down.is_set() and sides.d.process.pid == generation:
                errors.append(f'{todo[i]}: {e!r}')
            time.sleep(0.01)
            return False

    def work():
        while not errors:
            with lock:
                if not left and over.is_set():
                    return
                i = left.pop(0) if left else rng.randrange(len(todo))
            if not ask(i):
                with lock:
                    left.append(i)

    workers = [threading.Thread(target=work) for _ in range(at_once)]
    for w in workers:
        w.start()
    try:
        for _ in range(n_kills):
            time.sleep(rng.uniform(*pause_s))
            if rng.random() < 0.5:
                down.set()
                sides.d.kill()
                sides.d.start_again()
                down.clear()
            else:
                sides.p.kill()
                sides.p.start_again()
    finally:
        over.set()
        for w in workers:
            w.join()
    assert not errors, errors[:3]
    return longest, n[0]
