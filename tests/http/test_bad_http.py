"""Malformed and smuggling HTTP over raw sockets: a clear 4xx or 5xx, then the end of the connection; never a hang, never a second reading."""
import json
import random
import socket
import time

from lib import Connection, Server, chat, get, post, render, run_tests, seed_of, with_patience

OK_GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = json.dumps(chat(max_tokens=1)).encode()


def head(*fields, line=b"GET /livez HTTP/1.1"):
    return line + b"\r\n" + b"".join(f + b"\r\n" for f in fields) + b"\r\n"


def posted(*fields, body=BODY):
    return head(b"Host: localhost", b"Content-Type: application/json", *fields, line=b"POST /v1/chat/completions HTTP/1.1") + body


HOST = b"Host: localhost"
LENGTH = b"Content-Length: %d" % len(BODY)
REFUSED = [
    ("a CR alone ends an empty field (CVE-2023-30589)", 400, posted(b"X-Abc:\rxTransfer-Encoding: chunked", LENGTH)),
    ("a CR alone ends a field", 400, head(HOST, b"X-A: b\rX-C: d")),
    ("CR LF CR X ends the head (CVE-2025-23167)", 400, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\rX" + OK_GET),
    ("a bare LF ends a line", 400, b"GET /livez HTTP/1.1\nHost: localhost\r\n\r\n"),
    ("a bare LF ends a field", 400, b"GET /livez HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n"),
    ("a folded field", 400, head(HOST, b"X-A: b", b" c")),
    ("a field folded with a tab", 400, head(HOST, b"X-A: b", b"\tc")),
    ("a folded first field", 400, head(b" Host: localhost", HOST)),
    ("a space before the colon", 400, head(HOST, b"X-A : b")),
    ("a space before Content-Length's colon", 400, posted(b"Content-Length : 5")),
    ("an empty field name", 400, head(HOST, b": b")),
    ("a field without a colon", 400, head(HOST, b"XA")),
    ("a field name that is no token", 400, head(HOST, b"X(A): b")),
    ("a field name with a byte over 127", 400, head(HOST, b"X\xc3\xa4: b")),
    ("NUL in a value", 400, head(HOST, b"X-A: b\0c")),
    ("NUL in a name", 400, head(HOST, b"X\0A: b")),
    ("a control byte in a value", 400, head(HOST, b"X-A: b\x01c")),
    ("DEL in a value", 400, head(HOST, b"X-A: b\x7fc")),
    ("no Host", 400, head()),
    ("two Hosts", 400, head(HOST, HOST)),
    ("two different Hosts", 400, head(HOST, b"Host: evil")),
    ("an empty Host", 400, head(b"Host:")),
    ("a Host with a space", 400, head(b"Host: local host")),
    ("a Host with a slash", 400, head(b"Host: localhost/x")),
    ("two equal lengths", 400, posted(LENGTH, LENGTH)),
    ("two different lengths", 400, posted(LENGTH, b"Content-Length: 1")),
    ("a list of lengths", 400, posted(b"Content-Length: 5, 5")),
    ("a negative length", 400, posted(b"Content-Length: -1")),
    ("a signed length", 400, posted(b"Content-Length: +5")),
    ("a hexadecimal length", 400, posted(b"Content-Length: 0x10")),
    ("an empty length", 400, posted(b"Content-Length:")),
    ("a length with text", 400, posted(b"Content-Length: 5 x")),
    ("a length of 19 digits", 400, posted(b"Content-Length: 9999999999999999999")),
    ("a length beyond 64 bits", 400, posted(b"Content-Length: 18446744073709551617")),
    ("length and chunked", 400, posted(LENGTH, b"Transfer-Encoding: chunked")),
    ("chunked and length", 400, posted(b"Transfer-Encoding: chunked", LENGTH)),
    ("chunked twice", 400, posted(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")),
    ("chunked, identity", 400, posted(b"Transfer-Encoding: chunked, identity")),
    ("gzip, chunked", 400, posted(b"Transfer-Encoding: gzip, chunked")),
    ("xchunked", 400, posted(b"Transfer-Encoding: xchunked")),
    ("an empty Transfer-Encoding", 400, posted(b"Transfer-Encoding:")),
    ("chunked in HTTP/1.0", 400, head(HOST, b"Transfer-Encoding: chunked", line=b"POST /v1/completions HTTP/1.0")),
    ("an absolute target of another scheme", 400, head(HOST, line=b"GET https://localhost/livez HTTP/1.1")),
    ("an absolute target without a host", 400, head(HOST, line=b"GET http:///livez HTTP/1.1")),
    ("an absolute target with a user", 400, head(HOST, line=b"GET http://me@localhost/livez HTTP/1.1")),
    ("an absolute target with a fragment", 400, head(HOST, line=b"GET http://localhost#x HTTP/1.1")),
    ("an absolute target and no Host", 400, head(line=b"GET http://localhost/livez HTTP/1.1")),
    ("an absolute target and two Hosts", 400, head(HOST, HOST, line=b"GET http://localhost/livez HTTP/1.1")),
    ("two keys", 400, head(HOST, b"Authorization: Bearer a", b"authorization: Bearer a")),
    ("two keys of other services", 400, head(HOST, b"X-Api-Key: a", b"api-key: b")),
    ("an authority target", 400, head(HOST, line=b"CONNECT localhost:80 HTTP/1.1")),
    ("a star target with GET", 400, head(HOST, line=b"GET * HTTP/1.1")),
    ("a target without a slash", 400, head(HOST, line=b"GET livez HTTP/1.1")),
    ("a target with a byte over 127", 400, head(HOST, line=b"GET /livez\xc3\xa4 HTTP/1.1")),
    ("a target with a control byte", 400, head(HOST, line=b"GET /li\x01vez HTTP/1.1")),
    ("a target with a NUL", 400, head(HOST, line=b"GET /li\0vez HTTP/1.1")),
    ("two spaces before the target", 400, head(HOST, line=b"GET  /livez HTTP/1.1")),
    ("two spaces after the target", 400, head(HOST, line=b"GET /livez  HTTP/1.1")),
    ("a space at the end of the request line", 400, head(HOST, line=b"GET /livez HTTP/1.1 ")),
    ("a tab for a space", 400, head(HOST, line=b"GET\t/livez HTTP/1.1")),
    ("no version", 400, head(HOST, line=b"GET /livez")),
    ("only a method", 400, head(HOST, line=b"GET")),
    ("an unknown version", 505, head(HOST, line=b"GET /livez HTTP/1.2")),
    ("HTTP/2's preface", 505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("a version in lower case", 400, head(HOST, line=b"GET /livez http/1.1")),
    ("a method in lower case", 501, head(HOST, line=b"get /livez HTTP/1.1")),
    ("an unknown method", 501, head(HOST, line=b"BREW /livez HTTP/1.1")),
    ("a method with a colon", 400, head(HOST, line=b"G:T /livez HTTP/1.1")),
    ("an empty line before the method twice", 400, b"\r\n\r\n" + OK_GET),
    ("a TLS hello", 400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    ("a TLS hello that is cut", 400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ("a CR alone ends every line", 400, b"GET /livez HTTP/1.1\rHost: localhost\r\r"),
    ("a control byte and no line end", 400, b"GET /livez HTTP/1.1\r\nX: \x01"),
    ("a target of 9,000 bytes", 414, head(HOST, line=b"GET /" + b"a" * 9000 + b" HTTP/1.1")),
    ("a field of 9,000 bytes", 431, head(HOST, b"X-A: " + b"a" * 9000)),
    ("a head of 17 KiB", 431, head(HOST, *[b"X-%d: " % i + b"a" * 4000 for i in range(5)])),
    ("101 fields", 431, head(HOST, *[b"X-%d: a" % i for i in range(100)])),
    ("a chunk size that is no number", 400, posted(b"Transfer-Encoding: chunked", body=b"zz\r\nhello\r\n0\r\n\r\n")),
    ("a chunk size beyond 64 bits", 400, posted(b"Transfer-Encoding: chunked", body=b"fffffffffffffffff\r\nx")),
    ("a negative chunk size", 400, posted(b"Transfer-Encoding: chunked", body=b"-1\r\nx")),
    ("a chunk that is longer than it says", 400, posted(b"Transfer-Encoding: chunked", body=b"1\r\nxy\r\n0\r\n\r\n")),
    ("a chunk line that ends in LF", 400, posted(b"Transfer-Encoding: chunked", body=b"1\nx\r\n0\r\n\r\n")),
    ("a chunk line that is no number and has no end", 400, posted(b"Transfer-Encoding: chunked", body=b"zz")),
    ("a chunk extension without a name", 400, posted(b"Transfer-Encoding: chunked", body=b"1;=b\r\n{\r\n0\r\n\r\n")),
    ("a chunk extension whose quotes stay open", 400, posted(b"Transfer-Encoding: chunked", body=b"1;a=\"b\r\n{\r\n0\r\n\r\n")),
    ("a space behind a chunk's size", 400, posted(b"Transfer-Encoding: chunked", body=b"1 \r\n{\r\n0\r\n\r\n")),
    ("a trailer without a colon", 400, posted(b"Transfer-Encoding: chunked", body=b"0\r\nX-A\r\n\r\n")),
    ("a folded trailer", 400, posted(b"Transfer-Encoding: chunked", body=b"0\r\nX-A: b\r\n c\r\n\r\n")),
    ("101 trailers", 431, posted(b"Transfer-Encoding: chunked", body=b"0\r\n" + b"X: a\r\n" * 101 + b"\r\n")),
    ("a trailer of 9,000 bytes", 431, posted(b"Transfer-Encoding: chunked", body=b"0\r\nX: " + b"a" * 9000 + b"\r\n\r\n")),
    ("chunks that end in CR LF CR X", 400, posted(b"Transfer-Encoding: chunked", body=b"0\r\n\rX" + OK_GET)),
    ("chunk extensions of 5,000 bytes", 400, posted(b"Transfer-Encoding: chunked", body=b"1;a=" + b"b" * 5000 + b"\r\n{\r\n0\r\n\r\n")),
    ("a chunk extension of 20,000 bytes", 400, posted(b"Transfer-Encoding: chunked", body=b"1;a=" + b"b" * 20000)),
    ("an expectation that is not known", 417, posted(LENGTH, b"Expect: 200-ok")),
    ("a body over the limit", 413, posted(b"Content-Length: 4194305", body=b"")),
    ("a body far over the limit", 413, posted(b"Content-Length: 999999999999999999", body=b"")),
]


def refused(port, name, status, data, pieces=1):
    c = Connection(port)
    step = max(1, len(data) // pieces)
    try:
        for i in range(0, len(data), step):
            c.send(data[i:i + step])
    except (BrokenPipeError, ConnectionResetError):
        pass
    r = c.response()
    assert r.status == status, (name, r.status, r.body)
    r.error()
    assert r.headers.get("connection") == "close", (name, r.headers)
    assert c.closed(), name
    c.close()


def test_every_malformed_request_is_refused_and_its_connection_closed():
    with Server() as s:
        for name, status, data in REFUSED:
            refused(s.port, name, status, data)
        assert get(s.port, "/livez").status == 200


def test_cutting_the_bytes_differently_changes_no_verdict():
    with Server() as s:
        for name, status, data in REFUSED:
            refused(s.port, name, status, data, pieces=min(len(data), 37))


def test_a_request_in_single_bytes_is_understood():
    with Server("--mock-rate", "0") as s:
        c = Connection(s.port)
        for byte in posted(LENGTH):
            c.send(bytes([byte]))
        assert c.response().status == 200


def test_pipelined_requests_are_answered_in_order():
    with Server("--mock-rate", "0") as s:
        c = Connection(s.port)
        many = b""
        for i in range(50):
            body = json.dumps(chat(max_tokens=1 + i % 7)).encode()
            many += render("POST", "/v1/chat/completions", body, {"x-request-id": "r%d" % i}) + render("GET", "/livez", headers={"x-request-id": "g%d" % i})
        c.send(many)
        for i in range(50):
            r = c.response()
            assert r.status == 200 and r.headers["x-request-id"] == "r%d" % i, r.headers
            assert r.json()["usage"]["completion_tokens"] == 1 + i % 7
            assert c.response().headers["x-request-id"] == "g%d" % i


def test_chunked_bodies_and_extensions_are_read():
    with Server("--mock-rate", "0") as s:
        for size in (1, 7, 4096):
            parts = b"".join(b"%x;name=\"value\"\r\n" % len(BODY[i:i + size]) + BODY[i:i + size] + b"\r\n" for i in range(0, len(BODY), size))
            c = Connection(s.port)
            c.send(posted(b"Transfer-Encoding: chunked", body=parts + b"0\r\n\r\n") + OK_GET)
            assert c.response().status == 200
            assert c.response().status == 200, "the next request begins where the chunks end"
        for extension in (b"a=b;c=d", b"a;b", b'a="x";b=c', b'c="d e"'):
            c = Connection(s.port)
            c.send(posted(b"Transfer-Encoding: chunked", body=b"%x;%s\r\n%s\r\n0;%s\r\n\r\n" % (len(BODY), extension, BODY, extension)))
            assert c.response().status == 200, extension


def test_trailers_are_read_and_count_for_nothing():
    with Server("--mock-rate", "0", "--api-key", "k") as s:
        for fields, status in ((b"Authorization: Bearer k", 200), (b"X-A: b", 401)):
            c = Connection(s.port)
            trailers = b"Content-Length: 5\r\nHost: evil.example\r\nAuthorization: Bearer other\r\nX-Request-Id: late\r\nConnection: close\r\n"
            c.send(posted(b"Transfer-Encoding: chunked", fields, body=b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(BODY), BODY, trailers)))
            r = c.response()
            assert r.status == status and r.headers["x-request-id"] != "late", r.body
            if status == 200:
                c.send(OK_GET)
                assert c.response().status == 200, "the next request begins where the trailers end"


def test_a_chunked_body_over_the_limit_is_refused_as_it_arrives():
    with Server() as s:
        c = Connection(s.port)
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        c.send(posted(b"Transfer-Encoding: chunked", body=b""))
        try:
            for _ in range(66):
                c.send(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        r = c.response()
        assert r.status == 413 and r.error()["code"] == "body_too_large", r.body


@with_patience
def test_a_client_that_sends_to_the_end_before_it_reads_gets_its_refusal(scale):
    n = 16 << 20  # more than the sockets take
    with Server("--mock-rate", "0", "--mock-prefill", "%dms" % (300 * scale)) as s:
        c = Connection(s.port)
        c.send(posted(b"Content-Length: %d" % len(BODY)))  # while this is answered the server stops to read
        c.send(head(HOST, b"Content-Length: %d" % n, line=b"POST /nowhere HTTP/1.1") + b" " * n)
        assert c.response().status == 200
        assert c.response().status == 404 and c.closed()


def test_limits_of_the_head_hold_at_one_beyond():
    with Server() as s:
        line = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
        for total, status in ((16384, 200), (16385, 431)):
            fill = total - len(line) - 2
            fields = b""
            while fill > 4200:
                fields += b"X: " + b"a" * 4000 + b"\r\n"
                fill -= 4005
            fields += b"X: " + b"a" * (fill - 5) + b"\r\n"
            c = Connection(s.port)
            c.send(line + fields + b"\r\n")
            assert c.response().status == status, total
        for n, status in ((100, 200), (101, 431)):
            c = Connection(s.port)
            c.send(head(HOST, *[b"X-%d: a" % i for i in range(n - 1)]))
            assert c.response().status == status, n
        for n, status in ((8192, 404), (8193, 414)):
            c = Connection(s.port)
            c.send(head(HOST, line=b"GET /" + b"a" * (n - len(b"GET / HTTP/1.1\r\n")) + b" HTTP/1.1"))
            assert c.response().status == status, n


def test_a_body_at_the_limit_is_read():
    with Server("--mock-rate", "0") as s:
        body = json.dumps(chat(max_tokens=1)).encode()
        body = body[:-1] + b" " * (4194304 - len(body)) + b"}"
        assert post(s.port, "/v1/chat/completions", body).status == 200
        assert post(s.port, "/v1/chat/completions", body + b" ").status == 413


def test_100_continue_is_answered_before_the_body():
    with Server("--mock-rate", "0") as s:
        c = Connection(s.port)
        c.send(render("POST", "/v1/chat/completions", BODY, {"Expect": "100-continue"})[:-len(BODY)])
        assert c.response().status == 100
        c.send(BODY)
        assert c.response().status == 200
        c = Connection(s.port)  # refused before the body: no 100
        c.send(render("POST", "/nowhere", BODY, {"Expect": "100-continue"})[:-len(BODY)])
        assert c.response().status == 404


def test_head_options_and_wrong_methods():
    with Server() as s:
        r = Connection(s.port)
        r.send(render("HEAD", "/livez") + OK_GET)
        first = r.response(no_body=True)
        assert first.status == 200 and int(first.headers["content-length"]) > 0
        assert r.response().status == 200
        c = Connection(s.port)
        c.send(render("OPTIONS", "/v1/completions") + render("OPTIONS", "*"))
        assert c.response().headers["allow"] == "POST, OPTIONS" and c.response().status == 204
        for method, path, allow in (("GET", "/v1/completions", "POST, OPTIONS"), ("DELETE", "/v1/models", "GET, HEAD, OPTIONS"), ("POST", "/livez", "GET, HEAD, OPTIONS")):
            c = Connection(s.port)
            c.send(render(method, path))
            r = c.response()
            assert r.status == 405 and r.headers["allow"] == allow, (r.status, r.headers)
            r.error()
        for path, meant in (("/v1/nothing", ""), ("/chat/completions", "; there is /v1/chat/completions"), ("/v1/v1/models", "; there is /v1/models"),
                            ("/v1/health", "; there is /health"), ("/v1/chat/completions/", "; there is /v1/chat/completions"), ("//v1/models", "; there is /v1/models"),
                            ("/v1//models/", "; there is /v1/models"), ("/" * 150, "")):
            error = get(s.port, path).error()
            assert error["code"] == "unknown_route" and error["message"] == f"There is no route {path}{meant}.", error
        for path, word in (("/v1", "below /v1"), ("/openai/deployments/m/chat/completions?api-version=1", "Azure")):
            assert word in get(s.port, path).error()["message"], path
        for path in ("/../etc/passwd", "/v1//models", "/V1/models", "/v1/models%2f", "/%2e%2e/", "/v1/chat/completions/"):
            assert get(s.port, path).status == 404, path


def test_keep_alive_follows_version_and_wish():
    with Server() as s:
        c = Connection(s.port)
        c.send(OK_GET)
        assert "connection" not in c.response().headers
        c.send(render("GET", "/livez", headers={"Connection": "close"}))
        assert c.response().headers["connection"] == "close" and c.closed()
        c = Connection(s.port)
        c.send(b"GET /livez HTTP/1.0\r\n\r\n")
        assert c.response().status == 200 and c.closed()
        c = Connection(s.port)
        c.send(b"GET /livez HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n" + OK_GET)
        assert c.response().headers["connection"] == "keep-alive" and c.response().status == 200
        c = Connection(s.port)
        c.send(render("GET", "/livez", headers={"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}) + OK_GET)
        assert c.response().status == 200 and c.response().status == 200, "an offered upgrade is ignored"


def test_one_empty_line_before_a_request_is_forgiven():
    with Server() as s:
        c = Connection(s.port)
        c.send(b"\r\n" + OK_GET + b"\r\n" + OK_GET)
        assert c.response().status == 200 and c.response().status == 200


@with_patience
def test_slow_heads_and_bodies_are_given_up(scale):
    with Server("--header-timeout", "%dms" % (300 * scale), "--idle-timeout", "%dms" % (400 * scale)) as s:
        begun = time.monotonic()
        c = Connection(s.port)
        c.send(b"GET /livez HTTP/1.1\r\nHo")
        r = c.response()
        assert r.status == 408 and r.error()["code"] == "timeout" and c.closed()
        c = Connection(s.port)
        c.send(posted(LENGTH, body=b"{"))
        assert c.response().status == 408
        c = Connection(s.port)  # of the request before it, nothing is said
        c.send(b"HEAD /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\n\r\nGET /livez HTTP/1.1\r\nHo")
        assert c.response(no_body=True).headers["x-request-id"] == "mine"
        r = c.response()
        assert r.status == 408 and r.error()["code"] == "timeout" and r.headers["x-request-id"] != "mine"
        c = Connection(s.port)
        assert c.closed(), "an idle connection is closed without a word"
        assert time.monotonic() - begun < 30 * scale
        drip = Connection(s.port)  # a byte now and then does not count as progress
        drip.send(b"GET /livez HTTP/1.1\r\n")
        for byte in b"Host: localhost":
            try:
                drip.send(bytes([byte]))
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(0.05 * scale)
        assert drip.response().status == 408


def test_connection_limits_close_the_idle_first_and_then_refuse():
    with Server("--max-connections", "8", "--mock-rate", "5") as s:
        idle = [Connection(s.port) for _ in range(4)]
        for c in idle:
            c.send(OK_GET)
            c.response()
        busy = []
        for _ in range(7):
            c = Connection(s.port)
            c.send(render("POST", "/v1/chat/completions", json.dumps(chat(max_tokens=1000, stream=True)).encode()))
            c.head()
            busy.append(c)
        assert all(c.closed() for c in idle[:3]), "idle connections made room"
        busy.append(Connection(s.port))
        busy[-1].send(render("POST", "/v1/chat/completions", json.dumps(chat(max_tokens=1000, stream=True)).encode()))
        busy[-1].head()
        extra = Connection(s.port)
        r = extra.response()
        assert r.status == 503 and r.error()["code"] == "overloaded" and "retry-after" in r.headers
        for c in busy:
            c.close()


def test_a_host_name_that_is_not_local_is_refused_on_loopback():
    with Server("--allowed-host", "quire.test") as s:
        for host, status in (("evil.example", 403), ("localhost.evil.example", 403), ("localhost:1234", 200), ("127.0.0.1", 200),
                             ("[::1]:80", 200), ("quire.test:9", 200), ("LOCALHOST", 200), ("127.0.0.1.evil.example", 403), ("0.0.0.0", 403)):
            assert get(s.port, "/livez", {"Host": host}).status == status, host
            for other in ("localhost", "evil.example"):  # what the target says counts instead of Host
                assert get(s.port, "http://%s/livez" % host, {"Host": other}).status == status, host
        c = Connection(s.port)
        c.send(render("GET", "HTTP://LOCALHOST:1/v1/models?x=http://y") + render("GET", "http://localhost?x") + b"GET http://localhost/livez HTTP/1.0\r\n\r\n")
        assert c.response().status == 200
        r = c.response()
        assert r.status == 200 and b"below /v1" in r.body, r.body
        assert c.response().status == 200


def test_cors_is_off_unless_an_origin_is_named():
    with Server() as s:
        assert "access-control-allow-origin" not in get(s.port, "/livez", {"Origin": "https://a.example"}).headers
    with Server("--cors-origin", "https://a.example") as s:
        r = get(s.port, "/livez", {"Origin": "https://a.example"})
        assert r.headers["access-control-allow-origin"] == "https://a.example" and r.headers["vary"] == "Origin"
        exposed = set(r.headers["access-control-expose-headers"].split(", "))
        assert {"x-request-id", "request-id", "retry-after", "x-error-id", "x-ratelimit-remaining-tokens"} <= exposed, "what a script may read of an answer"
        assert "access-control-allow-origin" not in get(s.port, "/livez", {"Origin": "https://b.example"}).headers
        c = Connection(s.port)
        c.send(render("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://a.example", "Access-Control-Request-Headers": "x-stainless-os"}))
        r = c.response()
        assert r.status == 204 and r.headers["access-control-allow-origin"] == "https://a.example", r.headers
        assert r.headers["access-control-allow-headers"] == "authorization, *", "clients in a browser send fields of their own"


def test_only_json_is_taken_as_a_body():
    with Server("--mock-rate", "0") as s:
        for kind, status in (("application/json; charset=utf-8", 200), ("APPLICATION/JSON", 200), ("text/plain", 415), (None, 415),
                             ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415)):
            assert post(s.port, "/v1/chat/completions", chat(max_tokens=1), {"Content-Type": kind}).status == status, kind
        for coding, status in (("identity", 200), ("gzip", 415), ("gzip, identity", 415)):
            r = post(s.port, "/v1/chat/completions", chat(max_tokens=1), {"Content-Encoding": coding})
            assert r.status == status and (status == 200 or "'Content-Encoding: %s'" % coding in r.error()["message"]), r.body


def test_request_ids_are_echoed_when_plain_and_made_otherwise():
    with Server() as s:
        assert get(s.port, "/livez", {"x-request-id": "abc-1.2:3_Z"}).headers["x-request-id"] == "abc-1.2:3_Z"
        for bad in ("a b", "a\tb", "x" * 129, "\"q\"", "<script>"):
            made = get(s.port, "/livez", {"x-request-id": bad}).headers["x-request-id"]
            assert made.startswith("req_") and len(made) == 36, made


def test_garbage_from_a_seeded_generator_never_hangs():
    rng = random.Random(seed_of())
    alphabet = [b"GET ", b"/livez", b" HTTP/1.1", b"\r\n", b"\r", b"\n", b"Host: localhost", b": ", b"\0", b"Content-Length: 3", b"Transfer-Encoding: chunked", b"abc", b"0\r\n\r\n", b" ", b"\t", b"\xff", b"POST "]
    with Server("--header-timeout", "200ms", "--idle-timeout", "200ms") as s:
        for _ in range(300):
            c = Connection(s.port, timeout=30)
            try:
                c.send(b"".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 40))))
                c.socket.shutdown(socket.SHUT_WR)
                c.rest()
            except TimeoutError as e:
                raise AssertionError("it hangs") from e
            except OSError:
                pass
            c.close()
        assert get(s.port, "/livez").status == 200


if __name__ == "__main__":
    run_tests(globals())
