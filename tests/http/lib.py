"""What the HTTP tests share: a mock server as a child process, raw sockets, requests and event streams. Standard library only."""
import concurrent.futures
import functools
import json
import multiprocessing
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
import weakref

import model

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = model.make()
tests = {}  # by name: those of this run
MINUTE = 240 if "asan" in sys.argv[1] or "tsan" in sys.argv[1] else 60  # what takes as long never ends; a sanitizer build gets more time


class Server:
    """mock_server with the given options; use as a context manager. At its end `ledger` holds what it printed. limit: (soft, hard) of open files."""

    def __init__(self, *options, wait=True, limit=None):
        self.log = open("/tmp/quire-http-%d-%d.log" % (os.getpid(), time.monotonic_ns()), "w+")
        self.process = subprocess.Popen([sys.argv[1], "--model", MODEL, "--port", "0", *options], stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, preexec_fn=limit and (
                                            lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit)))
        line = self.process.stdout.readline()
        if not line.startswith("listening"):
            raise SystemExit("mock_server did not start: " + self.errors())
        self.port = int(line.split()[1])
        self.ledger = None
        if wait:
            self.wait_ready()

    def errors(self):
        """What it has logged so far. Reading moves nothing: the server writes at the place of the same file."""
        return os.pread(self.log.fileno(), 1 << 26, 0).decode()

    def wait_ready(self):
        for _ in range(2000):
            if get(self.port, "/readyz").status == 200:
                return
            time.sleep(0.02)
        raise SystemExit("mock_server did not become ready: " + self.errors())

    def stop(self, sig=signal.SIGTERM, timeout=MINUTE):
        if self.process.poll() is None and sig:
            self.process.send_signal(sig)
        out, _ = self.process.communicate(timeout=timeout)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        self.ledger = json.loads(lines[-1]) if lines else None
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for c in list(Connection.living):  # the server would wait for what a test left open
            if c.port == self.port:
                c.close()
        code = self.process.poll()
        if code is None:
            try:
                code = self.stop()
            except subprocess.TimeoutExpired:
                self.process.kill()
                code = -9
        errors = self.errors()
        self.log.close()
        os.unlink(self.log.name)
        if "Sanitizer" in errors or "runtime error" in errors or "assertion failed" in errors:
            print(errors, file=sys.stderr)
            raise SystemExit("mock_server reported an error of its own")
        if kind is None and code != 0 and not getattr(self, "any_status", False):
            raise SystemExit("mock_server ended with status %r: %s" % (code, errors))
        if kind is None and self.ledger:
            check_ledger(self.ledger)


def check_ledger(ledger):
    ended = ledger["stop"] + ledger["length"] + ledger["cancelled"] + ledger["failed"]
    assert ledger["accepted"] == ended + ledger["inside"], ledger


class Response:
    def __init__(self, status, headers, body, raw=b""):
        self.status, self.headers, self.body, self.raw = status, headers, body, raw

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The error object, checked for its four keys."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code", "id"} and re.fullmatch(r"Q[1-5]\d\d", error["id"]), error
        assert isinstance(error["message"], str) and isinstance(error["type"], str), error
        assert not re.search("0x[0-9a-fA-F]{6,}", error["message"]), "an address in a message: %r" % error
        return error


class Connection:
    """One TCP connection that sends bytes as told and reads responses."""
    living = weakref.WeakSet()

    def __init__(self, port, timeout=MINUTE, host="127.0.0.1"):
        self.port = port
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        Connection.living.add(self)

    def send(self, data):
        self.socket.sendall(data)

    def fill(self):
        data = self.socket.recv(65536)
        self.buffer += data
        return bool(data)

    def until(self, mark):
        while mark not in self.buffer:
            if not self.fill():
                raise EOFError(self.buffer)
        found, self.buffer = self.buffer.split(mark, 1)
        return found

    def exactly(self, n):
        while len(self.buffer) < n:
            if not self.fill():
                raise EOFError(self.buffer)
        found, self.buffer = self.buffer[:n], self.buffer[n:]
        return found

    def head(self):
        lines = self.until(b"\r\n\r\n").split(b"\r\n")
        status = int(lines[0].split(b" ")[1])
        headers = {}
        for line in lines[1:]:
            name, value = line.split(b":", 1)
            headers[name.decode().lower()] = value.strip().decode()
        return status, headers

    def response(self, no_body=False):
        status, headers = self.head()
        if no_body or status in (100, 204, 304):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b"".join(self.chunks())
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        else:
            body = self.rest()
        return Response(status, headers, body)

    def chunks(self):
        while True:
            n = int(self.until(b"\r\n"), 16)
            data = self.exactly(n)
            assert self.exactly(2) == b"\r\n"
            if n == 0:
                return
            yield data

    def rest(self):
        try:
            while self.fill():
                pass
        except ConnectionResetError:
            pass
        data, self.buffer = self.buffer, b""
        return data

    def closed(self, timeout=20):
        """True when the server ends the connection (without sending more)."""
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(1) == b"" and self.buffer == b""
        except ConnectionResetError:
            return True
        except socket.timeout:
            return False

    def close(self, reset=False):
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.socket.close()


def render(method, path, body=b"", headers=None, version="HTTP/1.1"):
    fields = {"Host": "localhost"}
    if body or method == "POST":
        fields["Content-Type"] = "application/json"
        fields["Content-Length"] = str(len(body))
    fields.update(headers or {})
    lines = ["%s %s %s" % (method, path, version)] + ["%s: %s" % item for item in fields.items() if item[1] is not None]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def call(port, method, path, body=None, headers=None, timeout=MINUTE):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    c = Connection(port, timeout)
    try:
        c.send(render(method, path, data, headers))
        return c.response(no_body=method == "HEAD")
    finally:
        c.close()


def get(port, path, headers=None):
    return call(port, "GET", path, None, headers)


def post(port, path, body, headers=None, timeout=MINUTE):
    return call(port, "POST", path, body, headers, timeout)


def events(body):
    """The data of an event stream as a list: parsed JSON, or "[DONE]". Comments are left out; anything else is an error."""
    out = []
    assert body.endswith(b"\n\n"), body[-80:]
    for block in body.decode().split("\n\n")[:-1]:
        if block.startswith(":"):
            continue
        assert block.startswith("data: ") and "\n" not in block, block
        data = block[6:]
        out.append(data if data == "[DONE]" else json.loads(data))
    return out


def chat(text="hello", **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}


def metrics(port, headers=None):
    """Samples by name and labels (model_name and engine left out)."""
    out = {}
    for line in get(port, "/metrics", headers).body.decode().splitlines():
        if line.startswith("#"):
            continue
        name, rest = line.split("{", 1)
        labels, value = rest.rsplit("} ", 1)
        extra = labels.split('engine="0"', 1)[1].lstrip(",")
        out[name + ("{" + extra + "}" if extra else "")] = float(value)
    return out


def with_patience(test):
    """A test whose steps have to fall into windows of time that the server's settings open: a machine that stops a process for half a second misses one. It is
    run again with windows of four and of sixteen times the length; what it said before is printed."""
    @functools.wraps(test)
    def run():
        for scale in (1, 4, 16):
            try:
                return test(scale)
            except Skip:
                raise
            except (Exception, SystemExit):
                if scale == 16:
                    raise
                print("again, slower: %s\n%s" % (test.__name__, traceback.format_exc()), flush=True)
    return run


def seed_of():
    """Where random tests begin: the same each time, another with QUIRE_TEST_SEED."""
    seed = int(os.environ.get("QUIRE_TEST_SEED") or 20261122)
    print("seed", seed)
    return seed


class Skip(Exception):
    """Raised by a test that cannot run here; the reason is printed."""


def run_test(name):
    """How it ended: passed, failed or skipped."""
    begun = time.monotonic()
    try:
        tests[name]()
        print("ok   %s (%.2f s)" % (name, time.monotonic() - begun), flush=True)
        return "passed"
    except Skip as reason:
        print("SKIP %s: %s" % (name, reason), flush=True)
        return "skipped"
    except (Exception, SystemExit):
        print("FAIL %s\n%s" % (name, traceback.format_exc()), flush=True)
        return "failed"


def run_tests(space, at_once=1):
    """Runs every function named test_* of a module's globals(), or those that the command line names; so many at once, each in a process, where they mostly
    wait. The closing line is added up by tools/count_tests.awk."""
    tests.update((name, f) for name, f in space.items() if name.startswith("test_") and name in (sys.argv[2:] or [name]))
    if at_once > 1:
        with concurrent.futures.ProcessPoolExecutor(at_once, multiprocessing.get_context("fork")) as pool:
            ends = list(pool.map(run_test, tests))
    else:
        ends = [run_test(name) for name in tests]
    print("%d passed, %d failed, %d skipped" % tuple(ends.count(word) for word in ("passed", "failed", "skipped")))
    sys.exit(1 if "failed" in ends else 0)
