"""What is under HTTP: TLS, Unix sockets, and what a service manager hears. Certificates are made by Debian's openssl."""
import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time

from lib import Connection, Server, Skip, chat, events, post, render, run_tests, with_patience

CHAT = "/v1/chat/completions"


class Files:
    """Certificates in a directory that goes with the tests."""
    at = tempfile.TemporaryDirectory(prefix="quire-tls-")

    @classmethod
    def path(cls, name):
        return os.path.join(cls.at.name, name)

    @classmethod
    def pair(cls, name, password=None):
        cert, key = cls.path(name + ".pem"), cls.path(name + ".key")
        if not os.path.exists(cert):
            try:
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2", "-subj", "/CN=" + name,
                                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", cert, "-keyout", key] +
                               (["-passout", "pass:" + password] if password else ["-nodes"]), check=True, capture_output=True)
            except FileNotFoundError:
                raise Skip("no openssl here (apt-get install openssl)")
        return cert, key


class TlsConnection(Connection):
    def __init__(self, port, cert=None, protocols=None, most=None):
        super().__init__(port)
        context = ssl.create_default_context(cafile=cert)
        if not cert:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if protocols:
            context.set_alpn_protocols(protocols)
        if most:
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.maximum_version = most
            context.set_ciphers("ALL:@SECLEVEL=0")
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost", suppress_ragged_eofs=False)

    def ask(self, method, path, body=None):
        self.send(render(method, path, b"" if body is None else json.dumps(body).encode()))
        return self.response()


class UnixConnection(Connection):
    def __init__(self, path):
        self.port, self.buffer = 0, b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        Connection.living.add(self)

    ask = TlsConnection.ask


def tls_server(*options, name="one"):
    cert, key = Files.pair(name)
    s = Server("--tls-cert", cert, "--tls-key", key, "--mock-rate", "0", *options, wait=False)
    for _ in range(500):
        c = TlsConnection(s.port, cert)
        ready = c.ask("GET", "/readyz").status == 200
        c.close()
        if ready:
            return s
        time.sleep(0.01)
    raise SystemExit("not ready: " + s.errors())


def without_ids(body):
    return re.sub(rb'"(id|created)": ?("[^"]*"|\d+)', b"", body)


# ---- TLS ----

def test_answers_over_tls_are_those_over_tcp_whole_streamed_and_one_after_the_other():
    cert, _ = Files.pair("one")
    bodies = [chat("hello", max_tokens=20, seed=1), chat("hello", max_tokens=20, seed=1, stream=True), chat("word " * 700, max_tokens=200, seed=2, stream=True)]
    with Server("--mock-rate", "0") as s:
        plain = [post(s.port, CHAT, body) for body in bodies]
    with tls_server() as s:
        c = TlsConnection(s.port, cert)
        for body, want in zip(bodies, plain):
            got = c.ask("POST", CHAT, body)
            assert got.status == want.status == 200 and without_ids(got.body) == without_ids(want.body), (got.body[:300], want.body[:300])
        c.close()


def test_32_clients_of_tls_at_once_hear_their_own_answers():
    cert, _ = Files.pair("one")
    wrong = []

    def client(n):
        c = TlsConnection(s.port, cert)
        for k in range(4):
            got = events(c.ask("POST", CHAT, chat("hello", max_tokens=n + k + 1, stream=True, stream_options={"include_usage": True})).body)
            if got[-1] != "[DONE]" or got[-2]["usage"]["completion_tokens"] != n + k + 1:
                wrong.append(got)
        c.close()

    with tls_server() as s:
        threads = [threading.Thread(target=client, args=(n,)) for n in range(32)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong[0]


def test_a_handshake_byte_by_byte_and_a_body_in_many_records_are_read():
    context = ssl.create_default_context(cafile=Files.pair("one")[0])
    with tls_server() as s:
        wire_in, wire_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(wire_in, wire_out, server_hostname="localhost")
        c = Connection(s.port)

        def pump(step):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    for byte in wire_out.read():
                        c.send(bytes([byte]))
                    wire_in.write(c.socket.recv(65536))
        pump(tls.do_handshake)
        for byte in render("POST", CHAT, json.dumps(chat("hi", max_tokens=3)).encode()):
            tls.write(bytes([byte]))
        c.send(wire_out.read())
        answer = pump(lambda: tls.read(65536))
        assert answer.startswith(b"HTTP/1.1 200"), answer
        c.close()


def test_the_end_of_a_connection_is_said_in_tls():
    with tls_server() as s:
        c = TlsConnection(s.port)
        c.send(render("GET", "/livez", headers={"Connection": "close"}))
        assert c.response().status == 200
        assert c.socket.recv(1) == b"", "suppress_ragged_eofs is off: an end without close_notify raises"
        c.close()


def test_clients_that_speak_plain_http_are_told_so_and_garbage_is_closed():
    with tls_server() as s:
        c = Connection(s.port)
        c.send(render("GET", "/livez"))
        r = c.response()
        assert r.status == 400 and "https" in r.error()["message"], r.body
        for garbage in (b"\x16\x03\x01\x00\x05hello", b"\x16" + b"\xff" * 300, os.urandom(2000).replace(b"\x16", b"\x17")):
            c = Connection(s.port)
            c.send(garbage)
            c.socket.settimeout(20)
            c.rest()
            c.close()
        c = TlsConnection(s.port)
        assert c.ask("GET", "/livez").status == 200
        raw = socket.socket(fileno=os.dup(c.socket.fileno()))
        raw.sendall(b"this is no record of TLS at all")
        raw.close()
        try:
            assert c.socket.recv(10) == b""
        except (ssl.SSLError, ConnectionResetError):
            pass
        assert TlsConnection(s.port).ask("GET", "/livez").status == 200, "the server goes on"


def test_protocols_older_than_tls_1_2_and_other_than_http_1_1_are_refused():
    cert, _ = Files.pair("one")
    with tls_server() as s:
        for most in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            c = TlsConnection(s.port, most=most)
            assert c.ask("GET", "/livez").status == 200 and c.socket.version() == most.name.replace("v1_", "v1."), c.socket.version()
        both = TlsConnection(s.port, cert, ["h2", "http/1.1"])
        assert both.socket.selected_alpn_protocol() == "http/1.1"
        for options in ({"protocols": ["h2"]}, {"most": ssl.TLSVersion.TLSv1_1}):
            try:
                TlsConnection(s.port, **options)
            except (ssl.SSLError, ConnectionResetError):
                continue
            raise AssertionError("%r was taken" % options)


@with_patience
def test_a_handshake_that_does_not_end_is_closed_by_the_time_of_heads(scale):
    with tls_server("--header-timeout", "%dms" % (400 * scale)) as s:
        c, begun = Connection(s.port), time.monotonic()
        c.send(b"\x16\x03\x01")
        assert c.closed() and time.monotonic() - begun > 0.3 * scale
        assert TlsConnection(s.port).ask("GET", "/livez").status == 200


def test_sighup_reads_the_certificate_again_and_keeps_the_old_where_the_new_one_is_none():
    live = [Files.path("live.pem"), Files.path("live.key")]

    def put(name):
        for to, source in zip(live, Files.pair(name)):
            with open(source) as f, open(to, "w") as out:
                out.write(f.read())

    def subject():
        c = TlsConnection(s.port)
        der = c.socket.getpeercert(True)
        c.close()
        return "two" if b"two" in der else "one"

    def until(what):
        end = time.monotonic() + 60
        while not what():
            assert time.monotonic() < end, s.errors()
            time.sleep(0.02)

    put("one")
    Files.pair("two")
    with Server("--tls-cert", live[0], "--tls-key", live[1], "--mock-rate", "0", wait=False) as s:
        old = TlsConnection(s.port)
        assert subject() == "one"
        put("two")
        os.kill(s.process.pid, signal.SIGHUP)
        until(lambda: subject() == "two")
        with open(live[0], "w") as f:
            f.write("nothing")
        os.kill(s.process.pid, signal.SIGHUP)
        until(lambda: "not replaced" in s.errors())
        assert subject() == "two" and old.ask("GET", "/livez").status == 200, "a connection that has begun goes on"


def test_files_that_are_no_certificate_with_its_key_end_the_start_and_are_named():
    one, two, locked = Files.pair("one"), Files.pair("two"), Files.pair("locked", "secret")
    empty = Files.path("empty")
    open(empty, "w").close()
    cases = [(["--tls-cert", Files.path("absent")], 4, "absent"), (["--tls-cert", empty], 4, "empty"), (["--tls-cert", one[0]], 4, "one.pem"),
             (["--tls-cert", one[0], "--tls-key", two[1]], 4, "two.key"), (["--tls-cert", locked[0], "--tls-key", locked[1]], 4, "locked.key"),
             (["--tls-key", one[1]], 2, "--tls-cert"), (["--tls-cert", one[0], "--tls-key", one[1], "--unix-socket", "/tmp/x"], 2, "--unix-socket")]
    for options, status, said in cases:
        r = subprocess.run([sys.argv[1], "--model", "x", "--port", "0", *options], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert r.returncode == status and said in r.stderr, (options, r.returncode, r.stderr)


# ---- Unix sockets ----

def test_a_unix_socket_serves_its_owner_and_group_and_goes_with_the_server():
    path = Files.path("sock")
    for left_behind in (False, True):
        with Server("--unix-socket", path, "--mock-rate", "0", wait=False) as s:
            mode = os.stat(path).st_mode
            assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o660, oct(mode)
            c = UnixConnection(path)
            while c.ask("GET", "/readyz").status != 200:
                time.sleep(0.01)
            got = events(c.ask("POST", CHAT, chat("hello", max_tokens=5, stream=True)).body)
            assert got[-1] == "[DONE]"
            c.send(render("GET", "/livez", headers={"Host": "any.name"}))
            assert c.response().status == 200
            other = subprocess.run([sys.argv[1], "--model", "x", "--unix-socket", path], capture_output=True, text=True, timeout=60)
            assert other.returncode == 3 and "another process" in other.stderr, other.stderr
            c.close()
            if not left_behind:
                s.process.kill()
                s.any_status = True
        assert os.path.exists(path) == (not left_behind)
    with open(path, "w") as f:
        f.write("kept")
    r = subprocess.run([sys.argv[1], "--model", "x", "--unix-socket", path], capture_output=True, text=True, timeout=60)
    assert r.returncode == 3 and "not a socket" in r.stderr and open(path).read() == "kept", r.stderr
    r = subprocess.run([sys.argv[1], "--model", "x", "--unix-socket", "/tmp/" + "x" * 200], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "--unix-socket" in r.stderr, r.stderr


# ---- service managers ----

class Manager:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self):
        self.path = Files.path("notify-%d" % time.monotonic_ns())
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(60)
        self.heard = []

    def wait_for(self, begin, times=1):
        while sum(text.startswith(begin) for text in self.heard) < times:
            self.heard.append(self.socket.recv(4096).decode())

    def drain(self):
        self.socket.setblocking(False)
        try:
            while True:
                self.heard.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            self.socket.settimeout(60)


def with_environment(variables, make):
    old = dict(os.environ)
    os.environ.update(variables)
    try:
        return make()
    finally:
        os.environ.clear()
        os.environ.update(old)


@with_patience
def test_systemd_hears_when_the_server_is_ready_what_it_does_and_that_it_stops(scale):
    m = Manager()
    with with_environment({"NOTIFY_SOCKET": m.path, "WATCHDOG_USEC": "200000"}, lambda: Server("--mock-load", "%dms" % (300 * scale), wait=False)) as s:
        m.wait_for("WATCHDOG=1")
        assert "READY=1" not in m.heard, "the model is not in yet"
        m.wait_for("READY=1")
        m.wait_for("WATCHDOG=1", 3)
        m.wait_for("STATUS=serving: 0 running, 0 waiting")
        s.stop()
        m.wait_for("STOPPING=1")


@with_patience
def test_systemds_watchdog_is_not_fed_while_the_engine_stands_still(scale):
    m = Manager()
    options = ("--watchdog", "%dms" % (300 * scale), "--mock-rate", "50")
    with with_environment({"NOTIFY_SOCKET": m.path, "WATCHDOG_USEC": "100000"}, lambda: Server(*options)) as s:
        c = Connection(s.port)
        c.send(render("POST", CHAT, json.dumps(chat(max_tokens=5, stream=True, seed=668)).encode()))
        until = time.monotonic() + 10
        while not stuck(s.port):
            assert post(s.port, "/tokenize", {"prompt": "x"}).status == 200 and time.monotonic() < until, "nobody saw it stand still"
            time.sleep(0.02)
        m.drain()
        n = m.heard.count("WATCHDOG=1")
        time.sleep(0.3)
        still = stuck(s.port)
        m.drain()
        assert not still or m.heard.count("WATCHDOG=1") <= n + 1, m.heard
        assert events(c.response().body)[-1] == "[DONE]"
        m.wait_for("WATCHDOG=1", m.heard.count("WATCHDOG=1") + 1)


def stuck(port):
    c = Connection(port)
    c.send(render("GET", "/readyz"))
    r = c.response()
    c.close()
    return r.status == 503 and r.json()["status"] == "stuck"


def test_an_engine_that_stands_still_for_long_ends_the_process_and_its_clients_are_told():
    if "tsan" in sys.argv[1]:
        raise Skip("the process ends with threads that stand still, which the thread sanitizer calls leaks")
    with Server("--watchdog", "200ms", "--watchdog-exit", "500ms", "--mock-rate", "50") as s:
        s.any_status = True
        c = Connection(s.port)
        c.send(render("POST", CHAT, json.dumps(chat(max_tokens=5, seed=668)).encode()))
        r = c.response()
        assert r.status in (500, 503) and "stands still" in r.error()["message"], r.body
        assert s.process.wait(60) == 70 and "made no step" in s.errors(), s.errors()


if __name__ == "__main__":
    run_tests(globals())
