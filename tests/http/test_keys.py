"""What a key may use and has used, keys that are reloaded, the access log, limits of the queue, clients behind proxies."""
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

from lib import MINUTE, Connection, Server, chat, events, get, metrics, post, render, run_tests, with_patience

CHAT = "/v1/chat/completions"
DOORS = {CHAT: {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, "/v1/completions": {"prompt": "x", "max_tokens": 1},
         "/v1/embeddings": {"input": "x"}, "/v1/responses": {"input": "x", "max_output_tokens": 16},
         "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
         "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "x"}]}, "/tokenize": {"prompt": "x"}, "/detokenize": {"tokens": [1]},
         "/api/chat": {"messages": [{"role": "user", "content": "x"}], "stream": False, "options": {"num_predict": 1}},
         "/api/generate": {"prompt": "x", "stream": False, "options": {"num_predict": 1}}, "/api/embed": {"input": "x"}, "/api/embeddings": {"prompt": "x"}}
TOKENLESS = ("/v1/messages/count_tokens", "/tokenize", "/detokenize")


class Keys:
    """A key file, and a server that reads it; `write` replaces what is in it."""

    def __init__(self, text, *options, admin=("--admin-key", "root")):
        self.dir = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.dir.name, "keys")
        self.write(text)
        self.server = Server("--api-key-file", self.path, *admin, "--mock-rate", "0", "--verbose", *options)

    def write(self, text):
        with open(self.path, "w") as f:
            f.write(text)

    def reload(self, says):
        before = self.server.errors().count(says)
        self.server.process.send_signal(signal.SIGHUP)
        wait(lambda: self.server.errors().count(says) > before)

    def __enter__(self):
        self.server.__enter__()
        return self

    def __exit__(self, *what):
        self.server.__exit__(*what)
        self.dir.cleanup()


def wait(true, seconds=MINUTE):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it has not come true"
        time.sleep(0.01)


def bearer(key):
    return {"Authorization": "Bearer " + key}


def usage(port, key):
    r = get(port, "/v1/usage", bearer(key)).json()
    assert r["object"] == "list" and r["since"] > 1.7e9, r
    return {u["key"]: u for u in r["data"]}


def hammer(port, key, n_clients, n_each, body):
    """The statuses that so many clients at once hear."""
    seen, lock, start = [], threading.Lock(), threading.Barrier(n_clients)

    def client():
        c = Connection(port)
        request = render("POST", "/v1/completions", json.dumps(body).encode(), bearer(key))
        start.wait()
        for _ in range(n_each):
            c.send(request)
            r = c.response()
            with lock:
                seen.append(r)
        c.close()
    threads = [threading.Thread(target=client) for _ in range(n_clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return seen


# ---- limits ----

def test_requests_a_minute_hold_under_32_clients():
    with Keys("k name=k rpm=40\nother\n") as k:
        port, begun = k.server.port, time.monotonic()
        seen = hammer(port, "k", 32, 4, {"prompt": "x", "max_tokens": 1})
        passed = [r for r in seen if r.status == 200]
        most = 40 + (time.monotonic() - begun) * 40 / 60 + 1
        assert 40 <= len(passed) <= most and len(seen) == 128, (len(passed), most)
        for r in seen:
            h = r.headers
            assert h["x-ratelimit-limit-requests"] == "40" and "x-ratelimit-limit-tokens" not in h, h
            assert 0 <= int(h["x-ratelimit-remaining-requests"]) < 40 and re.fullmatch(r"[\d.]+(ms|s)|\d+m\d+s", h["x-ratelimit-reset-requests"]), h
            if r.status != 200:
                assert r.status == 429 and 1 <= int(h["retry-after"]) <= 3, h
                assert r.error()["code"] == "rate_limit_exceeded" and r.error()["type"] == "rate_limit_error", r.error()
                assert "key k on requests per min (RPM): Limit 40" in r.error()["message"] and "Please try again in " in r.error()["message"]
        assert post(port, "/v1/completions", {"prompt": "x"}, bearer("other")).status == 200
        u = usage(port, "root")["k"]
        assert u["requests"] == 128 and u["errors"] == 128 - len(passed) and u["completion_tokens"] == len(passed) and u["running"] == 0, u


@with_patience
def test_calls_at_once_hold_under_32_clients(scale):
    with Keys("k name=k concurrent=4\n", "--mock-prefill", "%dms" % (150 * scale)) as k:
        seen = hammer(k.server.port, "k", 32, 1, {"prompt": "x", "max_tokens": 1})
        assert sorted(r.status for r in seen) == [200] * 4 + [429] * 28, [r.status for r in seen]
        assert post(k.server.port, "/v1/completions", {"prompt": "x", "max_tokens": 1}, bearer("k")).status == 200


def test_tokens_a_minute_hold_under_32_clients_within_one_request():
    with Keys("k name=k tpm=200\n", "--mock-prefill", "50ms") as k:
        port = k.server.port
        seen = hammer(port, "k", 32, 2, {"prompt": "x", "max_tokens": 30})
        one = next(r.json()["usage"]["total_tokens"] for r in seen if r.status == 200)
        total = sum(r.json()["usage"]["total_tokens"] for r in seen if r.status == 200)
        u = usage(port, "k")["k"]
        assert u["total_tokens"] == total and 200 <= total < 200 + 2 * one, (total, one)  # two: the seconds that it takes leak some
        r = post(port, "/v1/completions", {"prompt": "x"}, bearer("k"))
        assert r.status == 429 and "tokens per min (TPM): Limit 200" in r.error()["message"] and r.headers["x-ratelimit-remaining-tokens"] == "0", r.headers


def test_what_an_answer_does_not_use_is_given_back():
    with Keys("k name=k tpm=1000\n") as k:
        port = k.server.port
        begun = time.monotonic()
        r = post(port, "/v1/completions", {"prompt": "x", "max_tokens": 900, "seed": 1005}, bearer("k"))  # ends after 5
        used = r.json()["usage"]["total_tokens"]
        assert r.json()["usage"]["completion_tokens"] == 5
        r = post(port, "/tokenize", {"prompt": "x"}, bearer("k"))
        leaked = (time.monotonic() - begun) * 1000 / 60 + 1
        assert 0 <= int(r.headers["x-ratelimit-remaining-tokens"]) - (1000 - used) <= leaked, r.headers
        c = Connection(port)
        c.send(render("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 900, "stream": True}).encode(), bearer("k")))
        status, headers = c.head()
        assert status == 200 and int(headers["x-ratelimit-remaining-tokens"]) < 110, headers
        c.close()
        wait(lambda: usage(port, "k")["k"]["running"] == 0)


@with_patience
def test_every_door_counts_and_refuses_in_its_own_form(_):
    n = len(DOORS)  # of them one is given back every five seconds
    with Keys("k name=k rpm=%d\ntokens tpm=1\n" % n) as k:
        port = k.server.port
        for path, body in DOORS.items():
            r = post(port, path, body, bearer("k"))
            assert r.status == 200 and r.headers["x-ratelimit-remaining-requests"] == str(n - 1), (path, r.status, r.body, r.headers)
            n -= 1
        for path, body in DOORS.items():
            r = post(port, path, body, bearer("k"))
            assert r.status == 429 and int(r.headers["retry-after"]) >= 1 and r.headers["x-ratelimit-remaining-requests"] == "0", (path, r.status)
            e = r.json()
            if path.startswith("/v1/messages"):
                assert e["type"] == "error" and e["error"]["type"] == "rate_limit_error", e
            elif path.startswith("/api"):
                assert isinstance(e["error"], str) and "Rate limit" in e["error"], e
            else:
                assert r.error()["code"] == "rate_limit_exceeded", e
        assert post(port, CHAT, DOORS[CHAT], bearer("tokens")).status == 200
        for path, body in DOORS.items():
            assert post(port, path, body, bearer("tokens")).status == (200 if path in TOKENLESS else 429), path
        assert get(port, "/v1/models", bearer("k")).status == 200


# ---- usage ----

def test_usage_is_told_by_name_and_to_whom_it_belongs():
    with Keys("k1 name=alice weight=2\nk2 rpm=100\n") as k:
        port = k.server.port
        for _ in range(3):
            post(port, "/v1/completions", {"prompt": "abcdefg", "max_tokens": 5}, bearer("k1"))
        assert post(port, CHAT, {"messages": 1}, bearer("k2")).status == 400
        post(port, "/v1/embeddings", {"input": ["abc", "de"]}, bearer("root"))
        every = usage(port, "root")
        a = every.pop("alice")
        assert a["requests"] == 3 and a["completion_tokens"] == 15 and a["prompt_tokens"] == 24 and a["cached_tokens"] == 12 and a["errors"] == 0, a
        assert a["limits"] == {"rpm": None, "tpm": None, "concurrent": None, "weight": 2} and a["admin"] is False, a
        two = next(u for u in every.values() if u["limits"]["rpm"] == 100)
        admin = next(u for u in every.values() if u["admin"])
        assert re.fullmatch("[0-9a-f]{8}", two["key"]) and two["requests"] == 1 and two["errors"] == 1, two
        assert admin["requests"] == 1 and admin["prompt_tokens"] == 7 and admin["completion_tokens"] == 0, admin
        assert list(usage(port, "k1")) == ["alice"] and get(port, "/v1/usage").status == 401
        m = metrics(port, bearer("root"))
        assert m['quire_key_generation_tokens_total{key="alice"}'] == 15 and m['quire_key_requests_total{key="%s"}' % two["key"]] == 1, m
        assert not any("k1" in name for name in m)
    with Server("--mock-rate", "0") as s:
        post(s.port, "/v1/completions", {"prompt": "a", "max_tokens": 2})
        r = get(s.port, "/v1/usage").json()["data"]
        assert len(r) == 1 and r[0]["key"] == "anyone" and r[0]["completion_tokens"] == 2, r


# ---- reload ----

@with_patience
def test_sighup_takes_new_keys_in_and_old_ones_out(scale):
    with Keys("old name=old\nstays name=stays rpm=5\n", "--mock-prefill", "%dms" % (300 * scale)) as k:
        port = k.server.port
        for _ in range(2):
            assert post(port, "/v1/completions", {"prompt": "x", "max_tokens": 1}, bearer("stays")).status == 200
        running = Connection(port)
        running.send(render("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 4}).encode(), bearer("old")))
        half = Connection(port)
        request = render("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 4}).encode(), bearer("old"))
        half.send(request[:-5])
        wait(lambda: metrics(port, bearer("root"))["quire_calls"] >= 1)
        k.write("stays name=other-name rpm=3\nnew\n")
        k.reload("keys are reloaded")
        assert "users=2 admins=1 new=1 gone=1" in k.server.errors(), k.server.errors()
        assert post(port, "/v1/completions", {"prompt": "x"}, bearer("old")).status == 401
        half.send(request[-5:])
        assert half.response().status == 401, "it was a new request when its key was gone"
        assert running.response().json()["usage"]["completion_tokens"] == 4
        assert post(port, "/v1/completions", {"prompt": "x", "max_tokens": 1}, bearer("new")).status == 200
        u = usage(port, "stays")["other-name"]
        assert u["requests"] == 2 and u["completion_tokens"] == 2 and u["limits"]["rpm"] == 3, u
        assert [post(port, "/tokenize", {"prompt": "x"}, bearer("stays")).status for _ in range(2)] == [200, 429]


def test_who_looks_on_with_an_admins_key_that_is_gone_hears_no_more():
    with Keys("user name=user\n") as k:
        admins = os.path.join(os.path.dirname(k.path), "admins")
        with open(admins, "w") as f:
            f.write("gone\nstays\n")
        with Server("--mock-rate", "0", "--api-key-file", k.path, "--admin-key-file", admins) as s:
            streams = {}
            for key, path, body in (("gone", "events", b""), ("gone", "profile", b'{"seconds":60}'), ("stays", "events", b"")):
                c = streams[key, path] = Connection(s.port)
                c.send(render("POST" if body else "GET", "/v1/ops/" + path, body, bearer(key)))
                assert c.head()[0] == 200
            with open(admins, "w") as f:
                f.write("stays\n")
            s.process.send_signal(signal.SIGHUP)
            trace = b"".join(streams["gone", "profile"].chunks())
            assert "traceEvents" in json.loads(trace), "a profile ends with what it has"
            list(streams["gone", "events"].chunks())
            assert streams["gone", "events"].closed()
            more = streams["stays", "events"].chunks()
            assert [next(more) for _ in range(2)], "the other one goes on"


def test_a_wrong_file_keeps_the_old_keys_and_says_why():
    with Keys("old\n", admin=()) as k:
        port = k.server.port
        for text, why in (("old\nnew rpm=x\n", "keys:2: rpm= has to be"), ("", "has no key"), ("# all gone\n", "has no key")):
            k.write(text)
            k.reload("keys are not reloaded")
            assert why in k.server.errors(), k.server.errors()
            assert get(port, "/v1/models", bearer("old")).status == 200 and get(port, "/v1/models", bearer("new")).status == 401
        os.unlink(k.path)
        k.reload("keys are not reloaded")
        os.mkfifo(k.path)
        k.reload("expected a regular file")
        assert get(port, "/v1/models", bearer("old")).status == 200
        k.server.stop()
        assert not re.search("(old|new)[^a-z ]", k.server.errors().replace("the old ones", "")), "a key in the log: " + k.server.errors()


# ---- the access log ----

def lines_of(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def test_the_access_log_has_a_line_for_each_request_and_no_text():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "access.jsonl")
        with Keys("k name=alice concurrent=1\nfull name=full rpm=1", "--access-log", path) as k:
            port = k.server.port
            got = post(port, "/v1/completions", {"prompt": "hush hush", "max_tokens": 6}, {**bearer("k"), "x-request-id": "mine"})
            post(port, "/v1/messages", {"messages": [{"role": "user", "content": "hush"}], "max_tokens": 3, "stream": True}, bearer("k"))
            get(port, "/v1/models?hush=1", bearer("root"))
            get(port, "/v1/models")
            post(port, CHAT, {"messages": "hush"}, bearer("k"))
            post(port, "/api/embed", {"input": "hush"}, bearer("k"))
            post(port, CHAT, {"messages": []}, bearer("full"))
            post(port, CHAT, {"messages": []}, bearer("full"))
            c = Connection(port)
            c.send(b"hush\r\n\r\n")
            c.rest()
            c = Connection(port)
            c.send(render("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 4000, "seed": 668, "stream": True}).encode(), bearer("k")))
            c.head()
            c.close(reset=True)
            wait(lambda: len([x for x in lines_of(path) if x["path"] != "/readyz"]) == 10)
            lines = [x for x in lines_of(path) if x["path"] != "/readyz"]
        names = ["time", "id", "client", "key", "method", "path", "status", "door", "model", "prompt_tokens", "cached_tokens", "output_tokens", "ttft_ms",
                 "total_ms", "finish", "bytes"]
        assert all(list(x) == names for x in lines), lines
        with open(path) as f:
            assert "hush" not in f.read()
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        done, stream, models, stranger, wrong, embed, _, full, bad, gone = lines
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", done["time"]) and done["id"] == "mine" and done["client"] == "127.0.0.1", done
        assert (done["key"], done["method"], done["path"], done["status"], done["door"]) == ("alice", "POST", "/v1/completions", 200, "openai"), done
        assert (done["model"], done["prompt_tokens"], done["cached_tokens"], done["output_tokens"], done["finish"]) == ("mock", 10, 5, 6, "length"), done
        assert 0 <= done["ttft_ms"] <= done["total_ms"] and done["bytes"] > len(got.body), done
        assert (stream["door"], stream["status"], stream["output_tokens"], stream["finish"]) == ("messages", 200, 3, "length"), stream
        assert models["path"] == "/v1/models" and models["key"] and models["model"] is None and models["ttft_ms"] is None, models
        assert (stranger["status"], stranger["key"], stranger["finish"]) == (401, None, "missing_api_key"), stranger
        assert (wrong["status"], wrong["finish"], wrong["output_tokens"]) == (400, "invalid_value", 0), wrong
        assert (embed["door"], embed["finish"], embed["prompt_tokens"]) == ("ollama", None, 5), embed
        assert (full["status"], full["finish"], full["key"]) == (429, "rate_limit_exceeded", "full"), full
        assert (bad["status"], bad["method"], bad["path"], bad["door"]) == (400, None, None, None), bad
        assert (gone["status"], gone["finish"]) == (200, "gone"), gone


def test_the_access_log_is_opened_again_on_sighup():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "access.jsonl")
        with Server("--access-log", path, "--mock-rate", "0") as s:
            get(s.port, "/version")
            wait(lambda: "/version" in open(path).read())
            os.rename(path, path + ".1")
            get(s.port, "/livez")
            wait(lambda: "/livez" in open(path + ".1").read())
            s.process.send_signal(signal.SIGHUP)
            wait(lambda: os.path.exists(path))
            get(s.port, "/version")
            wait(lambda: os.path.getsize(path) > 0)
            assert [x["path"] for x in lines_of(path)] == ["/version"] and "/livez" in open(path + ".1").read()
            os.unlink(path)
            os.mkdir(path)
            s.process.send_signal(signal.SIGHUP)
            wait(lambda: "keeps its old file" in s.errors())
            assert get(s.port, "/version").status == 200
    r = subprocess.run([sys.argv[1], "--model", "x", "--port", "0", "--access-log", "/nowhere/x"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 4 and "/nowhere/x" in r.stderr, r.stderr


@with_patience
def test_a_reader_that_stands_still_costs_lines_and_no_time(_):  # a write that waits for the reader does so each time
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "pipe")
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with Server("--access-log", path, "--mock-rate", "0") as s:
            c = Connection(s.port)
            request = render("GET", "/" + "x" * 7000) * 20
            n, longest, lost = 0, 0, 0
            while lost == 0:
                begun = time.monotonic()
                c.send(request)
                for _ in range(20):
                    c.response()
                n += 20
                longest = max(longest, time.monotonic() - begun)
                if n % 400 == 0:
                    lost = metrics(s.port)["quire_access_log_lost_lines_total"]
                assert n < 20000
            os.set_blocking(reader, True)
            text, until = b"", time.monotonic() + MINUTE
            while b"lost_lines" not in text and time.monotonic() < until:
                text += os.read(reader, 65536)
                get(s.port, "/livez")
            told = [json.loads(line) for line in text.split(b"\n")[:-1]]
            assert sum(x.get("lost_lines", 0) for x in told) >= lost, (n, lost)
            assert longest < 5, longest
        os.close(reader)


# ---- the queue ----

@with_patience
def test_a_request_that_waits_too_long_is_answered_503(scale):
    with Server("--mock-running", "1", "--mock-rate", "%g" % (20 / scale), "--queue-timeout", "%dms" % (300 * scale)) as s:
        first = Connection(s.port)
        first.send(render("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 24, "n": 1, "stream": True}).encode()))
        first.head()
        for path in (CHAT, "/v1/messages"):
            begun = time.monotonic()
            r = post(s.port, path, DOORS[path])
            assert 0.25 * scale < time.monotonic() - begun < 0.8 * scale, time.monotonic() - begun
            assert int(r.headers["retry-after"]) >= 1
            if path == CHAT:
                assert r.status == 503 and r.error()["code"] == "queue_timeout" and "--queue-timeout" in r.error()["message"], r.body
            else:
                assert r.status == 529 and r.json()["error"]["type"] == "overloaded_error", r.body
        data = b"".join(first.chunks())
        assert data.endswith(b"data: [DONE]\n\n"), "what runs is not ended"
        both = events(post(s.port, "/v1/completions", {"prompt": "x", "max_tokens": 10, "n": 2, "stream": True}).body)
        assert both[-1] == "[DONE]", "a choice that waits for the other has begun"


def test_prompt_tokens_that_wait_are_bounded():
    with Server("--mock-running", "1", "--mock-rate", "20", "--max-waiting-tokens", "100") as s:
        first = Connection(s.port)
        first.send(render("POST", "/v1/completions", json.dumps({"prompt": "x" * 500, "max_tokens": 1000, "stream": True}).encode()))
        assert first.head()[0] == 200, "where none waits any may"
        waiting = []
        for _ in range(2):
            c = Connection(s.port)
            c.send(render("POST", "/v1/completions", json.dumps({"prompt": "x" * 45, "max_tokens": 1, "stream": True}).encode()))
            waiting.append(c)
        wait(lambda: metrics(s.port)["quire_waiting_tokens"] == 92)
        r = post(s.port, "/v1/completions", {"prompt": "x" * 45, "max_tokens": 1})
        assert r.status == 429 and r.error()["code"] == "queue_full" and r.headers["retry-after"] == "38", "the mock takes a second a token"
        assert "92 prompt tokens wait and this request has 46; the limit is 100 (--max-waiting-tokens)" in r.error()["message"], r.error()
        assert post(s.port, "/tokenize", {"prompt": "x" * 450}).status == 200
        first.close()
        for c in waiting:
            assert c.head()[0] == 200


# ---- clients behind proxies ----

def clients(path):
    return [x["client"] for x in lines_of(path) if x["path"] == "/version"]


def test_only_a_trusted_proxy_says_whose_request_it_is():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "log")
        spoof = [{}, {"X-Forwarded-For": "1.2.3.4"}, {"Forwarded": "for=1.2.3.4"}]
        with Server("--access-log", path) as s:
            for h in spoof:
                get(s.port, "/version", h)
            wait(lambda: len(clients(path)) == 3)
            assert clients(path) == ["127.0.0.1"] * 3
        os.unlink(path)
        with Server("--access-log", path, "--trusted-proxy", "127.0.0.1", "--trusted-proxy", "10.0.0.0/8") as s:
            for h in spoof + [{"X-Forwarded-For": "6.6.6.6, 1.2.3.4, 10.1.1.1"}, {"X-Forwarded-For": "nonsense"}, {"Forwarded": 'for="[2001:db8::1]:99"'}]:
                get(s.port, "/version", h)
            c = Connection(s.port)
            c.send(b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 6.6.6.6\r\nx-forwarded-for: 1.2.3.4\r\n\r\n")
            c.response()
            c.send(render("GET", "/version"))
            c.response()
            wait(lambda: len(clients(path)) == 8)
            assert clients(path) == ["127.0.0.1", "1.2.3.4", "1.2.3.4", "1.2.3.4", "127.0.0.1", "2001:db8::1", "1.2.3.4", "127.0.0.1"], clients(path)


def test_connections_of_a_proxy_are_counted_by_client():
    with Server("--trusted-proxy", "127.0.0.1", "--max-connections-per-address", "3", "--mock-rate", "10") as s:
        body = json.dumps({"prompt": "x", "max_tokens": 1000, "stream": True}).encode()
        held = []
        for _ in range(3):
            c = Connection(s.port)
            c.send(render("POST", "/v1/completions", body, {"X-Forwarded-For": "1.2.3.4"}))
            assert c.head()[0] == 200
            held.append(c)
        r = get(s.port, "/version", {"X-Forwarded-For": "1.2.3.4"})
        assert r.status == 503 and r.error()["code"] == "overloaded", r.body
        assert get(s.port, "/version", {"X-Forwarded-For": "1.2.3.5"}).status == 200 and get(s.port, "/version").status == 200
        held.pop().close()
        wait(lambda: get(s.port, "/version", {"X-Forwarded-For": "1.2.3.4"}).status == 200)
    r = subprocess.run([sys.argv[1], "--model", "x", "--port", "0", "--trusted-proxy", "10.0.0.0/33"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "--trusted-proxy: '10.0.0.0/33'" in r.stderr, r.stderr


if __name__ == "__main__":
    run_tests(globals(), at_once=3)
