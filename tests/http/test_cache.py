"""Pins over HTTP: who may, what a body may say, what is told of them; and wishes for the cache, which change no prompt."""
import json
import os
import tempfile
import time

import lib
import model
from lib import Connection, Server, call, chat, get, metrics, post, render, run_tests, with_patience

PIN, PINS, CHAT = "/v1/cache/pin", "/v1/cache/pins", "/v1/chat/completions"
TEXT = "The quick brown fox jumps over the lazy dog. "


def test_pins_are_made_listed_and_taken_away_by_admins_alone():
    admin, user = {"Authorization": "Bearer boss"}, {"Authorization": "Bearer user"}
    with Server("--mock-rate", "0", "--api-key", "user", "--admin-key", "boss") as s:
        assert get(s.port, PINS, admin).json() == {"object": "list", "blocks": 0, "blocks_max": 25, "pins_max": 64, "data": []}
        for headers, status in ((user, 403), ({}, 401)):
            assert post(s.port, PIN, {"prompt": TEXT}, headers).status == get(s.port, PINS, headers).status == status
            assert call(s.port, "DELETE", PIN + "/pin-1", headers=headers).status == status
        name = next(k["key"] for k in get(s.port, "/v1/usage", admin).json()["data"] if not k["admin"])
        made = []
        for body in ({"prompt": TEXT, "ttl": 60}, {"prompt": TEXT, "ttl": "2m", "key": name}, {**chat(TEXT), "stream": True, "n": 3, "logprobs": True},
                     {"prompt": list(range(40)), "max_tokens": 7, "echo": True, "prompt_logprobs": 2, "cache_salt": "s"}):
            r = post(s.port, PIN, body, admin)
            assert r.status == 200 and r.headers["content-type"] == "application/json", r.body
            made.append(r.json())
            assert set(made[-1]) == {"id", "object", "model", "prompt_tokens", "cached_tokens", "tokens", "blocks", "bytes", "expires_at"}, made
            assert made[-1]["tokens"] == made[-1]["prompt_tokens"] // 16 * 16 == 16 * made[-1]["blocks"] and made[-1]["bytes"] == 8 * made[-1]["tokens"]
        assert abs(made[0]["expires_at"] - time.time() - 60) < 30 and made[2]["expires_at"] is None and len({m["id"] for m in made}) == 4
        listed = get(s.port, PINS, admin)
        assert [p["id"] for p in listed.json()["data"]] == [m["id"] for m in made] and b"fox" not in listed.body and b"user" not in listed.body
        assert len({p["owner"] for p in listed.json()["data"]}) == 3, "the boss', the user's, a salt's"
        assert listed.json()["blocks"] == sum(m["blocks"] for m in made)
        for bad in (made[0]["id"][4:], made[0]["id"][:-1], made[0]["id"] + "0", "pin-" + "g" * 16, "x" * 300):
            assert call(s.port, "DELETE", PIN + "/" + bad, headers=admin).error()["code"] == "not_found", bad
        for m in made:
            assert call(s.port, "DELETE", PIN + "/" + m["id"], headers=admin).json() == {"id": m["id"], "object": "cache.pin", "deleted": True}
        assert get(s.port, PINS, admin).json()["data"] == [] and b'route="cache_pin"} 4.0' in get(s.port, "/metrics", admin).body


def test_what_cannot_be_pinned_is_said_by_its_field():
    with Server("--mock-rate", "0", "--mock-ctx", "600") as s:
        for body, status, code, param in (({}, 400, "invalid_value", "prompt"), ({"prompt": "a", **chat()}, 400, "invalid_value", "prompt"),
                                          ({"prompt": ["a", "b"]}, 400, "invalid_value", "prompt"), ({"prompt": [1, "a"]}, 400, "invalid_value", "prompt[1]"),
                                          ({"prompt": "a", "ttl": True}, 400, "invalid_value", "ttl"), ({"prompt": "a", "ttl": "soon"}, 400, "invalid_value", "ttl"),
                                          ({"prompt": "a", "ttl": 0.5}, 400, "invalid_value", "ttl"), ({"prompt": "a", "ttl": "9000h"}, 400, "invalid_value", "ttl"),
                                          ({"prompt": "a", "key": 5}, 400, "invalid_value", "key"), ({"prompt": "a", "key": "k" * 65}, 400, "invalid_value", "key"),
                                          ({"prompt": TEXT, "key": "none"}, 404, "not_found", "key"), ({"prompt": "a", "model": "x"}, 404, "model_not_found", "model"),
                                          ({"prompt": [1] * 601}, 400, "context_length_exceeded", "prompt"), ({"prompt": [1] * 420}, 429, "pins_full", None)):
            r = post(s.port, PIN, body)
            assert (r.status, r.error()["code"], r.error()["param"]) == (status, code, param), (str(body)[:80], r.body)
            assert (code != "pins_full") or "retry-after" not in r.headers
        assert post(s.port, PIN, {"prompt": [1] * 300}).json()["blocks"] == 18
        assert post(s.port, PIN, {"prompt": [1] * 300}).error()["code"] == "pins_full", "found when it has been computed"
        assert get(s.port, PINS).json()["blocks"] == 18
    with Server("--mock-rate", "0", "--no-chat-template") as s:
        assert post(s.port, PIN, chat()).error()["code"] == "unsupported" and post(s.port, PIN, {"prompt": TEXT}).status == 200


def test_a_client_that_leaves_before_its_prompt_is_computed_leaves_no_pin():
    with Server("--mock-prefill", "30s") as s:
        c = Connection(s.port)
        c.send(render("POST", PIN, json.dumps({"prompt": TEXT}).encode()))
        while metrics(s.port)["quire_calls"] == 0:
            time.sleep(0.01)
        c.close()
        while metrics(s.port)["quire_calls"] > 0:
            time.sleep(0.01)
        assert get(s.port, PINS).json()["data"] == []


def test_wishes_for_the_cache_change_no_token_of_a_prompt():
    shows_all = model.make("{{ messages | tojson }}{{ tools | tojson }}")
    wish = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"cache_control": {"type": "string"}}}}}
    plain = {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, {"role": "user", "content": "hi"}], "tools": [tool]}
    wishing = {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be kind.", **wish}]}, {"role": "user", "content": "hi", **wish}],
               "tools": [{**tool, **wish, "function": {**tool["function"], **wish}}], **wish, "prompt_cache_key": "k", "prompt_cache_retention": "24h"}
    messages = {"model": "mock", "max_tokens": 5, "system": [{"type": "text", "text": "Be kind."}], "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
    wished = {**messages, "system": [{**messages["system"][0], **wish}], "tools": [{**messages["tools"][0], **wish}], **wish,
              "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **wish}]}]}
    before, lib.MODEL = lib.MODEL, shows_all
    try:
        with Server("--mock-rate", "0") as s:
            asked = [post(s.port, CHAT + "/render", body) for body in (plain, wishing)]
            assert asked[0].status == 200 and asked[0].json()["token_ids"] == asked[1].json()["token_ids"], [r.body for r in asked]
            text = post(s.port, "/detokenize", {"tokens": asked[1].json()["token_ids"]}).json()["prompt"]
            assert text.count("cache_control") == 1, text
            asked = [post(s.port, "/v1/messages/count_tokens", body) for body in (messages, wished)]
            assert asked[0].status == 200 and asked[0].json() == asked[1].json(), [r.body for r in asked]
            for body in (plain, wishing):
                r = post(s.port, CHAT, {**body, "max_tokens": 3, "tool_choice": "none"})
                assert r.status == 200 and r.json()["choices"][0]["message"]["content"], r.body
    finally:
        lib.MODEL = before


@with_patience
def test_warm_up_comes_before_ready_and_a_bad_line_before_any_request(scale):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "warm.jsonl")

        def write(*items):
            with open(path, "w", encoding="utf-8") as f:
                f.write("\n".join(json.dumps(i) for i in items))
        write({"prompt": TEXT, "pin": True}, chat(TEXT), {"prompt": TEXT, "pin": True, "ttl": 5, "model": "mock/alias"})
        with Server("--mock-prefill", "%dms" % (300 * scale), "--warm-up", path, wait=False) as s:
            r = get(s.port, "/readyz")
            assert r.status == 503 and r.json() == {"status": "loading"} and post(s.port, CHAT, chat()).error()["code"] == "loading"
            s.wait_ready()
            made = get(s.port, PINS).json()["data"]
            assert len(made) == 2 and made[0]["expires_at"] is None and made[1]["expires_at"] > 0, made
            assert call(s.port, "DELETE", PIN + "/" + made[1]["id"]).status == 200
        write({"prompt": TEXT, "pin": True}, {"prompt": "a", "pin": 1})
        with Server("--warm-up", path, wait=False) as s:
            s.any_status = True
            assert s.stop(sig=0) == 1 and path + ":2: pin must be true or false" in s.errors(), s.errors()


run_tests(globals())
