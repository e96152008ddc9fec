"""POST /v1/embeddings: every form of input, float and base64, dimensions, large calls, and what is refused."""
import base64
import json
import math
import signal
import struct
import threading
import time

from lib import MINUTE, Connection, Server, get, metrics, post, render, run_tests, with_patience

PATH = "/v1/embeddings"
WIDTH = 8


def vectors(r):
    assert r.status == 200, (r.status, r.body)
    answer = r.json()
    assert set(answer) == {"object", "data", "model", "usage"} and answer["object"] == "list" and answer["model"] == "mock", answer
    for i, d in enumerate(answer["data"]):
        assert set(d) == {"object", "index", "embedding"} and d["object"] == "embedding" and d["index"] == i, d
    return [d["embedding"] for d in answer["data"]]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def expected(ids, n=WIDTH):
    """The mock's numbers, cut and normalised."""
    x = [len(ids) + (ids[i % len(ids)] % WIDTH == i) for i in range(WIDTH)][:n]
    return [f32(v / math.sqrt(sum(v * v for v in x))) for v in x]


def same(found, ids, n=WIDTH):
    want = expected(ids, n)
    assert len(found) == n and all(abs(a - b) <= 2 ** -23 for a, b in zip(found, want)), (found, want)  # the last bit: 1 / length is rounded too


def ids_of(s, text):
    return post(s.port, "/tokenize", {"prompt": text}).json()["tokens"]


def test_inputs_of_every_form_come_back_in_order():
    with Server("--mock-rate", "0") as s:
        ab, c = ids_of(s, "a b"), ids_of(s, "c")
        for given, ids in (("a b", [ab]), (["a b"], [ab]), (["a b", "c", "a b"], [ab, c, ab]), (ab, [ab]), ([c], [c]), ([[97], [98, 99]], [[97], [98, 99]])):
            r = post(s.port, PATH, {"model": "mock", "input": given})
            found = vectors(r)
            assert len(found) == len(ids), given
            for x, one in zip(found, ids):
                same(x, one)
                assert abs(sum(v * v for v in x) - 1) < 1e-6
            n = sum(len(one) for one in ids)
            assert r.json()["usage"] == {"prompt_tokens": n, "total_tokens": n}, r.body
        assert metrics(s.port)['quire_calls_total{route="embeddings"}'] == 6


def test_base64_holds_the_numbers_that_float_writes_and_dimensions_cut_before_normalising():
    with Server("--mock-rate", "0") as s:
        for n in range(1, WIDTH + 1):
            for extra in [{"dimensions": n}] + [{}] * (n == WIDTH):
                body = {"input": [[5, 6, 7], [3]], **extra}
                floats = vectors(post(s.port, PATH, {**body, "encoding_format": "float"}))
                packed = vectors(post(s.port, PATH, {**body, "encoding_format": "base64"}))
                assert floats == vectors(post(s.port, PATH, {**body, "encoding_format": None}))
                for x, text, ids in zip(floats, packed, ([5, 6, 7], [3])):
                    assert len(x) == n
                    assert list(struct.unpack("<%df" % n, base64.b64decode(text, validate=True))) == [f32(v) for v in x]
                    same(x, ids, n)


def test_a_call_may_have_more_inputs_than_the_queue():
    with Server("--mock-rate", "0", "--mock-running", "2", "--mock-waiting", "3") as s:
        many = [[i % 200, i % 7] for i in range(2048)]
        found = vectors(post(s.port, PATH, {"input": many}))
        assert len(found) == 2048
        for i in (0, 1, 64, 1000, 2047):
            same(found[i], many[i])
        r = post(s.port, PATH, {"input": many + [[1]]})
        assert r.status == 400 and "2048" in r.error()["message"] and r.error()["param"] == "input", r.body


def test_what_is_wrong_is_refused_by_name():
    with Server("--mock-rate", "0", "--mock-ctx", "32") as s:
        for body, param, words in (
                ({}, "input", ["required"]), ({"input": None}, "input", ["required"]), ({"input": ""}, "input", ["empty"]), ({"input": []}, "input", ["empty"]),
                ({"input": ["a", ""]}, "input[1]", ["empty"]), ({"input": [[1], []]}, "input[1]", ["empty"]), ({"input": 5}, "input", ["number"]),
                ({"input": {"a": 1}}, "input", ["object"]), ({"input": ["a", 1]}, "input[1]", ["number"]), ({"input": [1, "a"]}, "input[1]", ["token id"]),
                ({"input": [1, 2.5]}, "input[1]", ["2.5"]), ({"input": [-1]}, "input[0]", ["-1"]), ({"input": [[3, 10 ** 9]]}, "input[0][1]", [10 ** 9]),
                ({"input": [True]}, "input[0]", ["boolean"]), ({"input": [None]}, "input[0]", ["null"]),
                ({"input": [1] * 33}, "input", [33, 32]), ({"input": ["a", [1] * 33]}, "input[1]", [33, 32]),
                ({"input": "a", "dimensions": 0}, "dimensions", [1, WIDTH]), ({"input": "a", "dimensions": WIDTH + 1}, "dimensions", [WIDTH, WIDTH + 1]),
                ({"input": "a", "dimensions": "4"}, "dimensions", ["integer"]), ({"input": "a", "dimensions": 1.5}, "dimensions", ["integer"]),
                ({"input": "a", "dimensions": 2 ** 63}, "dimensions", [WIDTH]), ({"input": "a", "encoding_format": "int8"}, "encoding_format", ["int8", "base64"]),
                ({"input": "a", "encoding_format": 1}, "encoding_format", ["number"]), ({"input": "a", "model": 1}, "model", ["string"]),
                ({"input": "a", "add_special_tokens": 1}, "add_special_tokens", ["true or false"]),
                ({"input": "a", "truncate_prompt_tokens": 4}, "truncate_prompt_tokens", ["not supported"])):
            r = post(s.port, PATH, body)
            assert r.status == 400, (body, r.status, r.body)
            error = r.error()
            assert error["param"] == param and error["type"] == "invalid_request_error", (body, error)
            for word in words:
                assert str(word) in error["message"], (body, error)
        assert post(s.port, PATH, {"input": [1] * 33}).error()["code"] == "context_length_exceeded"
        same(vectors(post(s.port, PATH, {"input": [1] * 32}))[0], [1] * 32)
        r = post(s.port, PATH, {"input": "a", "model": "other"})
        assert r.status == 404 and r.error()["code"] == "model_not_found", r.body
        for raw in (b"", b"[]", b"{", b'{"input": "a"'):
            assert post(s.port, PATH, raw).status == 400, raw
        assert get(s.port, PATH).status == 405


def test_a_call_that_has_begun_waits_for_room_that_others_take():
    with Server("--mock-rate", "0", "--mock-running", "1", "--mock-waiting", "1", "--mock-prefill", "1ms") as s:
        done, refused = threading.Event(), []

        def disturb():
            while not done.is_set():
                refused.append(post(s.port, PATH, {"input": [1]}).status == 429)

        others = [threading.Thread(target=disturb) for _ in range(3)]
        for t in others:
            t.start()
        many = [[i % 200, i % 7] for i in range(100)]
        end = time.monotonic() + MINUTE
        while True:  # the first input finds room or does not, as any call; and somebody else found none meanwhile
            r = post(s.port, PATH, {"input": many})
            if r.status != 429 and any(refused) or time.monotonic() > end:
                break
        done.set()
        for t in others:
            t.join()
        found = vectors(r)
        assert len(found) == 100 and any(refused)
        for i in (0, 1, 50, 99):
            same(found[i], many[i])


def test_a_call_that_has_begun_is_finished_by_a_server_that_is_told_to_end():
    with Server("--mock-rate", "0", "--mock-running", "2", "--mock-waiting", "2", "--mock-prefill", "5ms") as s:
        c = Connection(s.port)
        c.send(render("POST", PATH, json.dumps({"input": [[1]] * 100}).encode()))
        while metrics(s.port)["quire_submitted_requests_total"] < 8:
            pass
        s.process.send_signal(signal.SIGTERM)
        assert len(vectors(c.response())) == 100
        assert s.stop(sig=None) == 0


@with_patience
def test_answers_in_the_making_have_a_limit_together(scale):
    with Server("--mock-rate", "0", "--mock-running", "256", "--mock-prefill", "%dms" % (100 * scale), "--max-bodies-size", "8MiB") as s:
        body = json.dumps({"input": [[1]] * 2048}).encode()  # numbers, their text, and the inputs themselves: some 1.5 MiB
        def refused(m):
            return m['quire_http_responses_total{status="4xx"}'] > 0

        slow, end = [], time.monotonic() + 20 * scale
        while not refused(metrics(s.port)):
            slow.append(Connection(s.port))
            slow[-1].send(render("POST", PATH, body))
            while (m := metrics(s.port))["quire_submitted_requests_total"] < 64 * len(slow) and not refused(m):
                assert time.monotonic() < end
        r = slow.pop().response()
        assert r.status == 429 and r.error()["code"] == "queue_full" and "--max-bodies-size" in r.error()["message"], r.body
        assert 2 <= len(slow) <= 8
        assert len(vectors(post(s.port, PATH, {"input": [1]}))) == 1
        for c in slow:
            c.close()
        while post(s.port, PATH, {"input": [[1]] * 420}).status == 429:  # what would not have fit beside them
            assert time.monotonic() < end


def test_an_answer_that_never_fits_is_too_large():
    with Server("--max-bodies-size", "1MiB") as s:
        r = post(s.port, PATH, {"input": [[1]] * 2048})
        assert r.status == 413 and r.error()["code"] == "too_large" and "--max-bodies-size, 1 MiB" in r.error()["message"], r.body


@with_patience
def test_a_full_queue_answers_429_at_once(scale):
    with Server("--mock-rate", "5", "--mock-running", "1", "--mock-waiting", "1", "--mock-prefill", "%dms" % (500 * scale)) as s:
        waiting = [Connection(s.port) for _ in range(2)]
        for c in waiting:
            c.send(render("POST", PATH, json.dumps({"input": [[1]]}).encode()))
            c.socket.settimeout(MINUTE)
        while metrics(s.port)["quire_submitted_requests_total"] < 2:
            pass
        r = post(s.port, PATH, {"input": [1]})
        assert r.status == 429 and r.error()["code"] == "queue_full", r.body
        for c in waiting:
            c.socket.settimeout(MINUTE)
            assert len(vectors(c.response())) == 1


if __name__ == "__main__":
    run_tests(globals())
