"""What operators see: the state, its stream, profiles; cancelling; and the metrics that dashboards ask for."""
import contextlib
import hashlib
import json
import os
import re
import signal
import sys
import time

from lib import MINUTE, Connection, Server, Skip, call, chat, get, metrics, post, render, run_tests, with_patience

CHAT = "/v1/chat/completions"
STATE, EVENTS, PROFILE = "/v1/ops/state", "/v1/ops/events", "/v1/ops/profile"
REQUEST = {"id", "route", "who", "state", "prompt_tokens", "cached_tokens", "done_tokens", "output_tokens", "max_tokens", "choices", "age_ms", "ttft_ms",
           "blocks", "priority"}


def state(s, headers=None):
    r = get(s.port, STATE, headers)
    assert r.status == 200 and r.headers["content-type"] == "application/json" and r.headers["cache-control"] == "no-store", (r.status, r.body)
    return check(r.json())


def check(v):
    """What holds of every state."""
    assert set(v) == {"now_us", "started_us", "version", "phase", "look_age_ms", "model", "limits", "use", "requests", "requests_left_out", "blocks", "rates",
                      "ttft_ms", "itl_ms", "steps", "warnings"}, sorted(v)
    b = v["blocks"]
    assert b["free"] + b["cached"] + b["used"] + b["shared"] == b["total"], b
    cells = sum(run[0] for run in b["map"])
    assert cells == (-(-b["total"] // b["per_cell"]) if b["total"] else 0) and cells <= 4096, b
    for before, run in zip([None, *b["map"]], b["map"]):
        assert run[0] > 0 and run[1] in "fcus" and before != run and len(run) == (3 if run[1] in "cu" else 2), (before, run)
        assert len(run) == 2 or 0 <= run[2] < len(b["owners"])
    assert all(re.fullmatch("[0-9a-f]{8}", o) for o in b["owners"]) and len(set(b["owners"])) == len(b["owners"]), b["owners"]
    for r in v["requests"]:
        assert set(r) - {"owner"} == REQUEST and r["state"] in ("waiting", "prefill", "decode"), r
        assert re.fullmatch("[0-9a-f]{8}", r["who"]) and ("owner" in r) == (r["blocks"] > 0), r
    for name in ("ttft_ms", "itl_ms"):
        assert len(v[name]["n"]) == len(v[name]["le"]) + 1 and v[name]["le"] == sorted(v[name]["le"]), v[name]
    assert len(v["steps"]) <= 240 and all(len(t) == 5 for t in v["steps"]) and v["steps"] == sorted(v["steps"]), v["steps"]
    return v


def until(found, what, seconds=MINUTE):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = found()
        if got:
            return got
        time.sleep(0.02)
    raise AssertionError("did not come: " + what)


@contextlib.contextmanager
def asking(s, path=CHAT, headers=None, **fields):
    """A connection on which a request was sent."""
    c = Connection(s.port)
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4000, **fields}
    c.send(render("POST", path, json.dumps(body).encode(), headers))
    try:
        yield c
    finally:
        c.close()


def test_an_idle_server_has_a_whole_state():
    with Server() as s:
        v = state(s)
        assert v["phase"] == "ready" and v["requests"] == [] and v["requests_left_out"] == 0 and v["warnings"] == [] and v["steps"] == [], v
        assert v["model"]["name"] == "mock" and v["model"]["ctx_max"] == 4096 and v["model"]["ranks"] == 1
        assert v["limits"]["running_max"] == 64 and v["limits"]["connections_max"] == 4096 and v["limits"]["requests_bytes"] == 256 << 20
        assert v["use"]["running"] == 0 and v["use"]["connections"] == 1 and v["use"]["rss_bytes"] > 1 << 20 and v["use"]["backlog_ms"] == 0
        assert v["blocks"]["map"] == [[100, "f"]] and v["blocks"]["owners"] == [] and v["blocks"]["per_cell"] == 1
        assert v["rates"] == {"prompt_tokens_s": 0, "output_tokens_s": 0, "requests_s": 0, "hit_ratio": 0} and v["now_us"] >= v["started_us"] > 0
        assert call(s.port, "HEAD", STATE).status == 200


def test_routers_are_told_how_much_runs_and_waits():
    look = {"Authorization": "Bearer looks"}
    with Server("--mock-running", "2", "--mock-rate", "50", "--api-key", "k", "--metrics-key", "looks") as s:
        idle = get(s.port, "/v1/loads?include=core,disagg,queues,memory", look).json()
        assert len(idle["loads"]) == 1 and idle["loads"][0]["num_running_reqs"] == 0 and idle["loads"][0]["max_running_requests"] > 0
        with contextlib.ExitStack() as open_ones:
            for _ in range(3):
                open_ones.enter_context(asking(s, headers={"Authorization": "Bearer k"}, stream=True))
            load = until(lambda: (lambda v: v if v["num_waiting_reqs"] == 1 and v["num_running_reqs"] == 2 and v["gen_throughput"] > 0 else None)(
                get(s.port, "/loads?model=mock", look).json()["loads"][0]), "two that run and one that waits")
        assert load["num_total_tokens"] >= load["num_used_tokens"] and load["num_waiting_uncached_tokens"] > 0 and load["queues"]["waiting"] == 1, load
        info = get(s.port, "/get_server_info", look).json()
        assert info["served_model_name"] == "mock" and info["context_length"] == 4096 and info["tp_size"] == 1 and info["disaggregation_mode"] == "null", (info, load)
        assert get(s.port, "/model_info", look).json()["is_generation"] is True


@with_patience
def test_a_server_that_loads_has_a_state_too(scale):
    with Server("--mock-load", "%dms" % (500 * scale), wait=False) as s:
        v = state(s)
        assert v["phase"] == "loading" and v["blocks"]["total"] == 0 and v["requests"] == []
        s.wait_ready()
        assert state(s)["phase"] == "ready"


def test_requests_stand_in_the_state_under_the_ids_that_clients_see():
    keys = [{"Authorization": "Bearer " + k} for k in ("first-key", "second-key", "the-admin")]
    with Server("--mock-running", "2", "--mock-rate", "50", "--api-key", "first-key", "--api-key", "second-key", "--admin-key", "the-admin") as s:
        with asking(s, headers=keys[0], stream=True) as one, asking(s, "/v1/completions", keys[1], prompt="a b", stream=True, priority=3) as two:
            ids = [json.loads(c.until(b"data: ") and c.until(b"\n\n"))["id"] for c in (one, two)]
            with asking(s, "/v1/messages", keys[0]):
                v = until(lambda: (lambda v: v if len(v["requests"]) == 3 and v["use"]["waiting"] == 1 and v["rates"]["output_tokens_s"] > 0
                                   and [r["output_tokens"] > 0 for r in v["requests"]].count(True) == 2 else None)(state(s, keys[2])), "three requests")
        by_route = {r["route"]: r for r in v["requests"]}
        assert [by_route[p]["id"] for p in (CHAT, "/v1/completions")] == ids, (ids, v["requests"])
        running, other, waiting = by_route[CHAT], by_route["/v1/completions"], by_route["/v1/messages"]
        assert running["state"] == other["state"] == "decode" and waiting["state"] == "waiting" and waiting["id"].startswith("msg_")
        assert running["max_tokens"] == 4000 and other["priority"] == 3 and running["choices"] == 1 and running["age_ms"] < 60000
        assert running["prompt_tokens"] == running["done_tokens"] > 0 and running["output_tokens"] > 0 and waiting["output_tokens"] == 0
        assert [r["who"] for r in (running, other)] == [hashlib.sha256(k).hexdigest()[:8] for k in (b"first-key", b"second-key")]
        owners = v["blocks"]["owners"]
        assert v["blocks"]["used"] == 2 and {running["owner"], other["owner"]} == set(owners) and len(owners) == 2, v["blocks"]
        assert [run[:2] for run in v["blocks"]["map"]] == [[1, "u"], [1, "u"], [98, "f"]], v["blocks"]
        assert len(v["steps"]) > 0


def test_no_word_of_a_prompt_no_salt_and_no_key_is_told():
    planted = ["Xyzzyplugh", "salted-secretly", "key-of-a-user", "key-of-admin"]
    admin, user = ({"Authorization": "Bearer " + k} for k in (planted[3], planted[2]))
    with Server("--api-key", planted[2], "--admin-key", planted[3], "--mock-rate", "100") as s:
        with asking(s, headers=user, messages=[{"role": "user", "content": planted[0] * 20}], cache_salt=planted[1], user=planted[0], n=2,
                    max_tokens=500):
            until(lambda: len(state(s, admin)["requests"]) == 1, "the request")
            told = get(s.port, STATE, admin).body + post(s.port, PROFILE, {"seconds": 0.2}, admin).body
            c = Connection(s.port)
            c.send(render("GET", EVENTS, headers=admin))
            told += c.until(b"\n\n") + get(s.port, "/metrics", admin).body
            c.close()
        digests = [hashlib.sha256(p.encode()).hexdigest() for p in planted]
        for word in planted + digests + [d[8:24] for d in digests]:
            assert word.lower().encode() not in told.lower(), word
        assert b"brown fox" not in told and b"hello" not in told  # nor of an answer
        assert digests[2][:8].encode() in told  # whose it is


# ---- cancelling ----

def cancel(s, id):
    return post(s.port, "/v1/ops/requests/%s/cancel" % id, {})


def the_request(s, n=1):
    return until(lambda: (lambda v: v["requests"] if len(v["requests"]) == n else None)(state(s)), "requests")


def test_a_cancelled_request_ends_with_an_error_of_its_door():
    doors = {CHAT: {}, "/v1/completions": {"prompt": "a", "messages": None}, "/v1/messages": {}, "/v1/responses": {"input": "a", "messages": None},
             "/api/chat": {}}
    with Server("--mock-rate", "50") as s:
        for path, fields in doors.items():
            for stream in (False, True):
                with asking(s, path, stream=stream, max_output_tokens=4000, **fields) as c:
                    found = until(lambda: [r for r in the_request(s) if r["output_tokens"] > 2], "tokens")[0]
                    r = cancel(s, found["id"])
                    assert r.status == 200 and r.json() == {"id": found["id"], "cancelled": True}, (path, r.body)
                    assert state(s)["requests"] == []
                    r = c.response()
                    why = b'"status":"cancelled"' if stream and path == "/v1/responses" else b"cancelled by the server's operator"
                    assert r.status == (200 if stream else 409) and why in r.body, (path, stream, r.status, r.body[-300:])
                    assert stream or r.headers["x-should-retry"] == "false"
                    last = r.body.decode().strip().split("\n")[-1]
                    last = json.loads(last[6:] if last.startswith("data: ") else last)
                    if path == "/v1/messages":
                        assert last["type"] == "error", last
                    elif path == "/v1/responses" and stream:
                        assert last["type"] == "response.failed" and last["response"]["status"] == "cancelled", last
                    elif path == "/api/chat":
                        assert isinstance(last["error"], str), last
                    else:
                        assert last["error"]["code"] == "response_cancelled", last
        s.stop()
        assert s.ledger["cancelled"] == 10 and s.ledger["inside"] == 0, s.ledger


@with_patience
def test_a_request_that_waits_is_cancelled_and_the_others_go_on(scale):
    with Server("--mock-running", "1", "--mock-rate", "50") as s:
        with asking(s, max_tokens=50 * scale) as running:
            the_request(s)
            with asking(s) as waiting:
                found = [r for r in the_request(s, 2) if r["state"] == "waiting"]
                assert len(found) == 1 and cancel(s, found[0]["id"]).status == 200
                assert waiting.response().status == 409
            assert running.response().json()["usage"]["completion_tokens"] == 50 * scale


def test_what_cannot_be_cancelled_is_404():
    with Server("--mock-rate", "0") as s:
        ended = post(s.port, CHAT, chat(max_tokens=2)).json()["id"]
        for id in ("chatcmpl-0", ended, "x" * 300, "%00", "a/b"):
            r = cancel(s, id)
            assert r.status == 404 and r.error()["code"] == "not_found", (id, r.body)
        for path in ("/v1/ops/requests/x", "/v1/ops/requests/x/pause", "/v1/ops/nothing"):
            r = post(s.port, path, {})
            assert r.status == 404 and r.error()["code"] == "unknown_route", (path, r.body)
        assert get(s.port, "/v1/ops/requests/x/cancel").status == 405


# ---- the stream ----

def next_state(c):
    data = c.until(b"\n\n").split(b"\r\n")[-1]
    assert data.startswith(b"event: state\ndata: "), data[:60]
    return check(json.loads(data[len(b"event: state\ndata: "):]))


def watch(s, headers=None):
    c = Connection(s.port)
    c.send(render("GET", EVENTS, headers=headers, version="HTTP/1.0"))  # not chunked
    status, fields = c.head()
    assert status == 200 and fields["content-type"].startswith("text/event-stream"), (status, fields)
    return c


@with_patience
def test_the_stream_tells_the_state_at_once_and_every_second(scale):
    with Server("--mock-rate", "40") as s, asking(s, stream=True):
        the_request(s)
        begun = time.monotonic()
        c = watch(s)
        seen, times = [], []
        for _ in range(4):
            seen.append(next_state(c))
            times.append(time.monotonic() - begun)
        gaps = [b["now_us"] - a["now_us"] for a, b in zip(seen, seen[1:])]
        assert times[0] < 0.6 * scale and max(gaps) < 1e6 + 0.5e6 * scale and 2.6 < times[3] < 3 + scale, (times, gaps)
        assert min(gaps) > 0.7e6 or scale > 1, gaps  # behind one that was late the next comes sooner
        told = [t[0] for v in seen for t in v["steps"]]
        assert told == sorted(set(told)) and all(len(v["steps"]) > 10 // scale for v in seen[1:]), [len(v["steps"]) for v in seen]
        assert seen[1]["itl_ms"]["n"] == seen[0]["itl_ms"]["n"]  # the mock measures none
        c.close()


def loop_seconds(pid):
    """Processor time of the loop thread, which is the first one."""
    with open("/proc/%d/task/%d/schedstat" % (pid, pid)) as f:
        return int(f.read().split()[0]) * 1e-9


def test_an_open_page_costs_next_to_nothing():
    if "asan" in sys.argv[1] or "tsan" in sys.argv[1]:
        raise Skip("the time of a sanitizer says nothing")
    with Server("--mock-running", "256", "--mock-rate", "0.01", "--mock-blocks", "4096") as s, contextlib.ExitStack() as stack:
        for _ in range(256):
            stack.enter_context(asking(s))
        v = until(lambda: (lambda v: v if len(v["requests"]) == 256 and v["blocks"]["used"] == 256 else None)(state(s)), "256 requests")
        assert len(v["blocks"]["map"]) > 3800, len(v["blocks"]["map"])
        spent = []
        for n_pages in (0, 1):
            pages = [watch(s) for _ in range(n_pages)]
            begun, before = time.monotonic(), loop_seconds(s.process.pid)
            while time.monotonic() < begun + 1.5:
                for c in pages:
                    c.until(b"\n\n")
                time.sleep(0 if pages else 0.1)
            spent.append((loop_seconds(s.process.pid) - before) / (time.monotonic() - begun))
            for c in pages:
                c.close()
        page = spent[1] - spent[0]
        print("   an open page: %.2f ms of processor time a second, beside %.2f ms of a server without one" % (1e3 * page, 1e3 * spent[0]))
        assert page < 0.005 * (1 if os.environ.get("QUIRE_TEST_TIMING") else 3), spent


@with_patience
def test_a_stuck_engine_does_not_keep_the_state_back(_):
    with Server("--mock-rate", "0", "--watchdog", "300ms") as s:
        state(s)
        with asking(s, stream=True, seed=668):  # it stands still for 1.5 s: a state that waited for it would not be one of that time
            v = until(lambda: (lambda v: v if v["phase"] == "stuck" else None)(state(s)), "a state of a stuck engine", 10)
            assert v["look_age_ms"] > 300 and [w["id"] for w in v["warnings"]] == ["stuck"], v


def test_more_onlookers_than_there_is_room_for_are_refused_and_those_that_leave_make_room():
    with Server() as s:
        open_ones = [watch(s) for _ in range(16)]
        for path in (STATE, EVENTS):
            r = get(s.port, path)
            assert r.status == 429 and r.error()["code"] == "queue_full" and "retry-after" in r.headers, r.body
        assert post(s.port, PROFILE, {"seconds": 0.1}).status == 429
        for c in open_ones:
            next_state(c)
            c.close()
        until(lambda: get(s.port, STATE).status == 200, "room")


def test_an_open_page_does_not_keep_a_server_from_ending():
    with Server() as s:
        c, p = watch(s), Connection(s.port)
        next_state(c)
        p.send(render("POST", PROFILE, b'{"seconds": 50}'))
        p.head()
        begun = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        assert next_state(c)["phase"] == "draining" and c.rest() == b""
        assert json.loads(b"".join(p.chunks()))["otherData"]["us"] < 20e6
        assert s.stop(sig=None) == 0 and time.monotonic() - begun < 20


# ---- profiles ----

def spans_nest(spans):
    """Whether of (begin, end) each two lie apart or one in the other."""
    open_ends = []
    for begin, end in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            return False
        open_ends.append(end)
    return True


def check_trace(body):
    trace = json.loads(body)
    events = trace["traceEvents"]
    steps = [e for e in events if e["ph"] == "X"]
    assert all({"name", "ph", "pid", "tid"} <= set(e) for e in events) and {e["ph"] for e in events} <= set("MXbe"), events[:5]
    assert spans_nest([(e["ts"], e["ts"] + e["dur"]) for e in steps])
    assert {e["name"] for e in steps} <= {"step", "plan", "lower", "forward", "wait", "mask", "sample", "output"}
    by_id = {}
    for e in events:
        if e["ph"] in "be":
            by_id.setdefault(e["id"], []).append(e)
    for id, edges in by_id.items():
        stack, at = [], 0
        for e in edges:
            assert e["ts"] >= at and e["cat"] == "request", edges
            at = e["ts"]
            if e["ph"] == "b":
                stack.append(e["name"])
            else:
                assert stack.pop() == e["name"], edges
        assert stack == [] and edges[0]["name"] == edges[-1]["name"] == "request", edges
    other = trace["otherData"]
    assert other["steps"] == len([e for e in steps if e["name"] == "step"]) and other["requests"] == len(by_id), other
    return trace, by_id


@with_patience
def test_a_profile_is_a_trace_whose_spans_nest(scale):
    with Server("--mock-rate", "100", "--mock-running", "2") as s, asking(s, stream=True), asking(s, stream=True):
        the_request(s, 2)
        with asking(s):
            until(lambda: len(state(s)["requests"]) == 3, "one that waits")
            c = Connection(s.port)
            begun = time.monotonic()
            c.send(render("POST", PROFILE, b'{"seconds": %.1f}' % (0.6 * scale)))
            time.sleep(0.2)
            ended = [r["id"] for r in the_request(s, 3) if r["state"] == "decode"][0]
            cancel(s, ended)
            r = c.response()
        assert r.status == 200 and r.headers["content-type"] == "application/json" and 0.5 * scale < time.monotonic() - begun < 3 * scale
        trace, requests = check_trace(r.body)
        assert 0.5e6 * scale < trace["otherData"]["us"] < 2e6 * scale and trace["otherData"]["steps"] > 20 and trace["otherData"]["steps_missed"] == 0, trace["otherData"]
        states = {id: edges[0]["args"]["state"] for id, edges in requests.items()}
        assert len(states) == 3 and states[ended] == "cancelled" and sorted(states.values())[1] == "decode", states
        assert all(e[0]["args"]["route"] == CHAT for e in requests.values())


def test_a_profile_of_nothing_is_a_trace_and_wrong_lengths_are_refused():
    with Server() as s:
        trace, requests = check_trace(post(s.port, PROFILE, {"seconds": 0.1}).body)
        assert requests == {} and trace["otherData"]["steps"] == 0
        for seconds in (0, -1, 61, 1e300, "5", True, [5]):
            r = post(s.port, PROFILE, {"seconds": seconds})
            assert r.status == 400 and r.error()["param"] == "seconds", (seconds, r.body)
        assert post(s.port, PROFILE, b"{").status == 400
        assert call(s.port, "POST", PROFILE, b"{}", {"Content-Type": "text/plain"}).status == 415


# ---- metrics ----

# What the dashboards ask of an engine that come with vLLM (overview, service status, KV cache, query and performance statistics) and its production stack.
HISTOGRAMS = """time_to_first_token_seconds inter_token_latency_seconds request_time_per_output_token_seconds e2e_request_latency_seconds
request_queue_time_seconds request_inference_time_seconds request_prefill_time_seconds request_decode_time_seconds request_prompt_tokens
request_generation_tokens request_max_num_generation_tokens request_params_max_tokens request_params_n request_prefill_kv_computed_tokens
iteration_tokens_total""".split()
OTHERS = """num_requests_running num_requests_waiting num_requests_waiting_by_reason{reason="capacity"} num_requests_waiting_by_reason{reason="deferred"}
engine_sleep_state{sleep_state="awake"} kv_cache_usage_perc prefix_cache_queries_total prefix_cache_hits_total num_preemptions_total prompt_tokens_total
prompt_tokens_cached_total prompt_tokens_by_source_total{source="local_compute"} prompt_tokens_by_source_total{source="local_cache_hit"}
prompt_tokens_by_source_total{source="external_kv_transfer"} prompt_tokens_cached_by_source_total{source="p2p"}
prompt_tokens_cached_by_source_total{source="disk"} prompt_tokens_cached_by_source_total{source="external_unspecified"}
generation_tokens_total request_success_total{finished_reason="stop"} request_success_total{finished_reason="length"}
request_success_total{finished_reason="abort"} request_success_total{finished_reason="error"} engine_sleep_state{sleep_state="discard_all"}
mm_cache_queries_total mm_cache_hits_total external_prefix_cache_queries_total external_prefix_cache_hits_total spec_decode_num_drafts_total
spec_decode_num_draft_tokens_total spec_decode_num_accepted_tokens_total spec_decode_num_accepted_tokens_per_pos_total{position="0"}
prompt_tokens_cached_by_source_total{source="device"} prompt_tokens_cached_by_source_total{source="host"}""".split()


def test_every_query_that_vllms_dashboards_have_for_an_engine_finds_its_series():
    with Server("--mock-rate", "0") as s:
        found = metrics(s.port)
        for name in HISTOGRAMS:
            assert "vllm:%s_sum" % name in found and "vllm:%s_count" % name in found and 'vllm:%s_bucket{le="+Inf"}' % name in found, name
        for name in OTHERS:
            assert "vllm:" + name in found, name
        assert abs(found["process_start_time_seconds"] - time.time()) < 60 and 0 < found["process_cpu_seconds_total"] < 60, found
        assert found["process_resident_memory_bytes"] > 1e6 and 5 < found["process_open_fds"] < found["process_max_fds"], found
        for k in "245":
            assert found['http_requests_total{handler="%s",method="POST",status="%sxx"}' % (CHAT, k)] == 0
        assert any(name.startswith("vllm:cache_config_info{") for name in found) and found["quire_backlog_seconds"] == 0
        for _ in range(3):
            assert post(s.port, CHAT, chat(max_tokens=2)).status == 200
        assert post(s.port, CHAT, {}).status == 400 and post(s.port, CHAT, chat(seed=667)).status == 500
        assert post(s.port, "/tokenize", {"prompt": "a"}).status == 200
        found = metrics(s.port)
        chats = 'http_requests_total{handler="%s",method="POST",status="' % CHAT
        assert [found[chats + k + 'xx"}'] for k in "245"] == [3, 1, 1] and found['http_requests_total{handler="/tokenize",method="POST",status="2xx"}'] == 1
        spent = 'http_request_duration_seconds_%s{handler="' + CHAT + '",method="POST"}'
        assert found[spent % "count"] == 5 and 0 < found[spent % "sum"] < 60
        assert not any("/metrics" in name or "readyz" in name for name in found)  # probes are not traffic


run_tests(globals(), at_once=3)
