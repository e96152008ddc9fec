"""A request's own timeout, and requests that could not be in time: what their clients hear, in each API's form."""
import json
import time

from lib import Connection, Server, events, get, metrics, post, render, run_tests, with_patience

USER = {"messages": [{"role": "user", "content": "x"}]}
TEXT = {"/v1/chat/completions": {**USER, "max_tokens": 1000}, "/v1/completions": {"prompt": "x", "max_tokens": 1000},
        "/v1/responses": {"input": "x", "max_output_tokens": 1000}, "/v1/messages": {**USER, "max_tokens": 1000},
        "/api/chat": {**USER, "stream": False, "options": {"num_predict": 1000}}, "/api/generate": {"prompt": "x", "stream": False, "options": {"num_predict": 1000}}}
NUMBERS = {"/v1/embeddings": {"input": "x"}}


def message(r):
    e = r.json()["error"]
    return e if isinstance(e, str) else e["message"]


def test_a_timeout_out_of_range_is_refused_by_name_on_every_route():
    with Server("--mock-rate", "0", "--request-timeout", "20s") as s:
        for path, body in {**TEXT, **NUMBERS}.items():
            for wrong in (0.099, 0, -1, 20.001, 1e300, "2", True, [1]):
                r = post(s.port, path, {**body, "timeout": wrong})
                assert r.status == 400 and "timeout must be" in message(r), (path, wrong, r.status, r.body)
                assert path.startswith("/api/") or path == "/v1/messages" or r.error()["param"] == "timeout", r.body
            assert "between 0.1 and 20 seconds (--request-timeout), found 20.001" in message(post(s.port, path, {**body, "timeout": 20.001}))
            for right in (0.1, 20, 19.5, None):
                r = post(s.port, path, {**body, "timeout": right, "max_tokens": 1, "max_output_tokens": 16, "options": {"num_predict": 1}})
                assert r.status in (200, 504), (path, right, r.status, r.body)  # a tenth of a second may be too short here


@with_patience
def test_a_request_past_its_own_timeout_ends_with_an_error_of_its_api(scale):
    with Server("--mock-rate", "20") as s:
        for path, body in TEXT.items():
            begun = time.monotonic()
            r = post(s.port, path, {**body, "timeout": 0.15 * scale})
            assert r.status == 504 and 0.14 * scale < time.monotonic() - begun < 1 * scale, (path, r.status, r.body, time.monotonic() - begun)
            assert "not finished within its time limit" in message(r), r.body
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
            c = Connection(s.port)
            c.send(render("POST", path, json.dumps({**TEXT[path], "stream": True, "timeout": 0.25 * scale}).encode()))
            r = c.response()
            assert r.status == 200 and b"not finished within its time limit" in r.body[-1000:], (path, r.body)
        for last in events(post(s.port, "/v1/completions", {**TEXT["/v1/completions"], "stream": True, "timeout": 0.25 * scale}).body)[-1:]:
            assert last["error"]["code"] == "timeout", last
        assert get(s.port, "/livez").status == 200 and metrics(s.port)["quire_requests_inside"] == 0


def test_what_would_come_too_late_hears_so_before_anything_was_done():
    with Server("--mock-rate", "0") as s:
        for seed, status, code in ((670, 429, "too_late"), (671, 503, "too_late"), (672, 400, "too_large")):
            for stream in (False, True):
                r = post(s.port, "/v1/chat/completions", {**USER, "max_tokens": 3, "seed": seed, "stream": stream})
                assert r.status == status and r.error()["code"] == code and "the mock was asked to be late" in r.error()["message"], (seed, r.status, r.body)
                assert r.headers.get("retry-after") == (None if status == 400 else "7"), r.headers
                assert ("Please try again in 7s." if status != 400 else "(--request-timeout).") in r.error()["message"], r.body
            r = post(s.port, "/v1/chat/completions", {**USER, "max_tokens": 3, "seed": seed, "timeout": 5})
            assert status != 400 or "(timeout)." in r.error()["message"], r.body
            r = post(s.port, "/v1/messages", {**USER, "max_tokens": 3, "seed": seed})
            assert r.status == (529 if status == 503 else status), (r.status, r.body)
            assert r.json()["error"]["type"] == {429: "rate_limit_error", 503: "overloaded_error", 400: "invalid_request_error"}[status], r.body


if __name__ == "__main__":
    run_tests(globals())
