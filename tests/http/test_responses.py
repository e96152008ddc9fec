"""OpenAI's Responses API: bodies as its clients send them, answers whole and streamed. The mock engine says what a script says."""
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import model
from lib import Connection, Server, Skip, call, get, metrics, post, render, run_tests, with_patience

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
SAY = 500000
THINKING = model.TEMPLATE.replace("{%- if m.content is string", "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{%- if m.content is string").replace(
    "assistant\\n' }}{% endif %}", """assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}""")
HERMES = ("--tool-format", "hermes", "--model", model.make(THINKING))
WEATHER = {"type": "function", "name": "get_weather", "description": "Says it.", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"], "additionalProperties": False}}
TIME = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
SAID = ("just text", "I look.\n" + PARIS, PARIS + "\n" + NOW, "<think>\nhm\n</think>\n\nIt is 4.", "<think>\nhm\n</think>\n\nFirst.\n" + PARIS, "&<>\"\\ \u00e9", "<think>\nno end", NOW)
ALWAYS = {"id", "object", "created_at", "status", "error", "incomplete_details", "instructions", "metadata", "model", "output", "parallel_tool_calls", "temperature",
          "tool_choice", "tools", "top_p", "usage", "background", "max_output_tokens", "previous_response_id", "reasoning", "store", "text", "truncation", "top_logprobs"}


def scripts(*texts):
    return [x for t in texts for x in ("--mock-script", t)]


def ask(s, headers=None, **fields):
    body = {"model": "mock", "max_output_tokens": 400, "input": "hi", **fields}
    return post(s.port, RESPONSES, {k: v for k, v in body.items() if v is not ...}, headers)


def answer(s, headers=None, **fields):
    r = ask(s, headers, **fields)
    assert r.status == 200, (str(fields)[:200], r.body)
    return r.json()


def named_events(body):
    """The data of each event; comments are left out, and the name is the data's type."""
    out = []
    for block in body.decode().rstrip("\n").split("\n\n"):
        if block.startswith(":"):
            continue
        first, second = block.split("\n")
        assert first.startswith("event: ") and second.startswith("data: "), block
        out.append(json.loads(second[6:]))
        assert out[-1]["type"] == first[7:] and out[-1]["sequence_number"] == len(out) - 1, block
    return out


def order_of(events):
    """What kinds of events follow one another: runs of deltas are one."""
    out = []
    for e in events:
        if not out or out[-1] != e["type"]:
            out.append(e["type"])
    return out


def joined(events):
    """The output that a client makes of a stream, and its last event's response. Every event is checked against those before."""
    assert order_of(events)[:2] == ["response.created", "response.in_progress"], order_of(events)
    assert all(e["response"]["status"] == "in_progress" and e["response"]["output"] == [] for e in events[:2])
    items, text, opened = [], "", None
    for e in events[2:-1]:
        kind = e["type"][len("response."):]
        assert e["output_index"] == len(items) and (opened is None) == (kind == "output_item.added"), e
        assert kind.startswith("output_item") or e["item_id"] == opened["id"], e
        if kind == "output_item.added":
            opened, text = e["item"], ""
            assert opened.get("status", "in_progress") == "in_progress" and not opened.get("content") and not opened.get("arguments"), e
        elif kind.endswith(".delta"):
            text += e["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert e["text"] == text and e["content_index"] == 0, (e, text)
        elif kind == "function_call_arguments.done":
            assert e["arguments"] == text and e["name"] == opened["name"], (e, text)
        elif kind == "content_part.done":
            assert e["part"]["text"] == text, e
        elif kind == "output_item.done":
            item = e["item"]
            assert {k: item[k] for k in ("id", "type")} == {k: opened[k] for k in ("id", "type")}, e
            assert (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]) == text, (item, text)
            items.append(item)
            opened = None
    assert opened is None and events[-1]["response"]["output"] == items, events[-1]
    return events[-1]["response"]


def told(r):
    """Without what differs from call to call."""
    output = []
    for item in r["output"]:
        prefix = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}[item["type"]]
        assert item["id"].startswith(prefix) and (prefix != "fc_" or item["call_id"].startswith("call_")), item
        output.append({**item, "id": None, "call_id": None})
    usage = {**r["usage"], "input_tokens_details": None}
    return {**r, "id": None, "created_at": None, "output": output, "usage": usage}


def same_in_a_stream(s, **fields):
    """The whole answer, after it was seen to be the stream's."""
    whole = answer(s, **fields)
    assert ALWAYS <= set(whole) and whole["id"].startswith("resp_") and whole["object"] == "response", whole
    r = ask(s, stream=True, **fields)
    assert r.status == 200 and r.headers["content-type"].startswith("text/event-stream"), r.body
    events = named_events(r.body)
    assert events[-1]["type"] == "response." + whole["status"], (events[-1]["type"], whole["status"])
    streamed = joined(events)
    assert told(whole) == told(streamed), (told(whole), told(streamed))
    return whole


def kinds(r):
    return [item["type"] for item in r["output"]]


def text_of(r):
    return "".join(p["text"] for item in r["output"] if item["type"] == "message" for p in item["content"])


def test_a_stream_joined_is_the_whole_answer():
    with Server("--mock-rate", "0", *HERMES, *scripts(*SAID)) as s:
        r = [same_in_a_stream(s, seed=SAY + i, tools=[WEATHER, TIME]) for i in range(len(SAID))]
        assert text_of(r[0]) == "just text" and r[0]["status"] == "completed" and r[0]["error"] is None, r[0]
        part = r[0]["output"][0]["content"][0]
        assert part == {"type": "output_text", "text": "just text", "annotations": [], "logprobs": []} and r[0]["output"][0]["role"] == "assistant", part
        assert kinds(r[1]) == ["message", "function_call"] and json.loads(r[1]["output"][1]["arguments"]) == {"city": "Paris", "days": 2}, r[1]
        assert [c["name"] for c in r[2]["output"]] == ["get_weather", "get_time"] and r[2]["output"][1]["arguments"] == "{}", r[2]
        assert kinds(r[3]) == ["reasoning", "message"] and r[3]["output"][0]["content"][0]["text"].strip() == "hm" and r[3]["output"][0]["summary"] == [], r[3]
        assert kinds(r[4]) == ["reasoning", "message", "function_call"] and all(i.get("status", "completed") == "completed" for i in r[4]["output"]), r[4]
        assert text_of(r[5]) == SAID[5] and kinds(r[6]) == ["reasoning"], r[6]
        usage = r[3]["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] and usage["output_tokens_details"]["reasoning_tokens"] > 0, usage
        assert set(usage["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"} and usage["input_tokens_details"]["cache_write_tokens"] == 0, usage
        for i in range(len(SAID)):  # cut off anywhere
            for n in (1, 3, 17):
                short = same_in_a_stream(s, seed=SAY + i, tools=[WEATHER, TIME], max_output_tokens=n)
                if short["status"] == "incomplete":
                    assert short["incomplete_details"] == {"reason": "max_output_tokens"} and short["usage"]["output_tokens"] == n, short
        assert same_in_a_stream(s, seed=SAY, max_output_tokens=3)["output"][-1]["status"] == "incomplete"


def kind_of(event):
    return event["type"], event.get("part", event.get("item", event))["type"]


def test_events_have_the_recorded_order():
    data = os.environ.get("QUIRE_DATA")
    if not data:
        raise Skip("QUIRE_DATA is not set")
    folder = os.path.join(data, "answers/api/sse")
    with Server("--mock-rate", "0", *HERMES, *scripts("Hello", "<think>\nI think\n</think>\n\nHello\n" + PARIS)) as s:
        for i, name in enumerate(("responses_good_text.sse", "responses_good_reasoning_call.sse")):
            with open(os.path.join(folder, name), "rb") as f:
                recorded = named_events(f.read())
            ours = named_events(ask(s, stream=True, seed=SAY + i, tools=[WEATHER]).body)
            assert order_of(ours) == order_of(recorded), (name, order_of(ours), order_of(recorded))
            first = {kind_of(e): e for e in reversed(ours)}
            for e in recorded:
                mine = first[kind_of(e)]
                assert set(e) <= set(mine), (e, mine)
                for key in ("response", "part", "item"):
                    assert set(e.get(key, {})) <= set(mine.get(key, {})), (e, mine)


def test_the_conversation_is_what_chat_makes_of_it():
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    user = {"role": "user", "content": "hi"}
    flat = [user, {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}', "status": "completed"},
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"}]
    chats = [user, {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "rain"}]
    sealed = [flat[0], {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "quire:hm"}, *flat[2:]]
    foreign = [flat[0], {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAAAx"}, *flat[2:]]
    parts = [*flat[:4], {**flat[4], "output": [{"type": "input_text", "text": "rain"}]}]
    two = {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}
    cases = [("hi", [user]), ([user], [user]), (flat, chats), (sealed, chats), (foreign, chats), (parts, chats),
             ([two], [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]), ([], [{"role": "user", "content": ""}]),
             ([{"role": "developer", "content": "Be kind."}, user], [{"role": "system", "content": "Be kind."}, user]),
             ([user, {"role": "assistant", "content": "yes"}, user], [user, {"role": "assistant", "content": "yes"}, user])]
    with Server("--mock-rate", "0", *HERMES) as s:
        for given, chat in cases:
            for system in (None, "You help."):
                messages = ([{"role": "system", "content": system}] if system else []) + chat
                for tools in ([], [WEATHER]):
                    nested = [{"type": "function", "function": {k: v for k, v in t.items() if k != "type"}} for t in tools]
                    wanted = len(post(s.port, "/tokenize", {"messages": messages, "tools": nested}).json()["tokens"])
                    usage = answer(s, input=given, instructions=system, tools=tools, max_output_tokens=1)["usage"]
                    assert usage["input_tokens"] == wanted, (given, usage, wanted)


def test_tools_and_formats_bind_as_in_chat():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"], "additionalProperties": False}
    with Server("--mock-rate", "0", *HERMES) as s:
        r = answer(s, seed=669, text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}, "verbosity": "low"})
        assert json.loads(text_of(r))["a"] >= 3 and r["text"]["format"]["name"] == "x" and r["text"]["verbosity"] == "low", r
        assert json.loads(text_of(answer(s, seed=669, text={"format": {"type": "json_object"}}))) == {}
        assert answer(s, text={"format": {"type": "text"}})["text"] == {"format": {"type": "text"}}
        for choice, name in (("required", "get_weather get_time"), ({"type": "function", "name": "get_time"}, "get_time"),
                             ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_time"}, {"type": "web_search"}]}, "get_time")):
            r = same_in_a_stream(s, seed=669, tools=[{"type": "web_search"}, WEATHER, TIME], tool_choice=choice)
            assert kinds(r) and r["output"][0]["name"] in name.split() and r["tool_choice"] == choice and r["tools"][0] == {"type": "web_search"}, r
        r = ask(s, tools=[TIME, {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array", "unevaluatedItems": {"type": "string"}, "items": {"$ref": "http://x"}}}}}], tool_choice="required")
        assert r.status == 400 and r.error()["param"].startswith("tools[1].parameters.properties.a"), r.body


def test_logprobs_are_told_where_they_are_asked_for():
    with Server("--mock-rate", "0", *HERMES, *scripts("just text", "I look.\n" + PARIS)) as s:
        for i in range(2):
            r = same_in_a_stream(s, seed=SAY + i, include=["message.output_text.logprobs"], top_logprobs=2, tools=[WEATHER])
            found = r["output"][0]["content"][0]["logprobs"]
            assert len(found) > 1 and all(set(t) == {"token", "logprob", "bytes", "top_logprobs"} and len(t["top_logprobs"]) == 2 for t in found), found
        assert answer(s, seed=SAY, top_logprobs=2)["output"][0]["content"][0]["logprobs"] == []
        events = named_events(ask(s, seed=SAY, stream=True, include=["message.output_text.logprobs"]).body)
        deltas = [t for e in events if e["type"] == "response.output_text.delta" for t in e["logprobs"]]
        done = next(e for e in events if e["type"] == "response.output_text.done")["logprobs"]
        assert deltas == done[:len(deltas)] and len(deltas) >= len(done) - 1 > 0, (deltas, done)


def test_settings_are_repeated():
    with Server("--mock-rate", "0") as s:
        given = {"instructions": "Be kind.", "metadata": {"a": "b"}, "parallel_tool_calls": False, "temperature": 0.5, "top_p": 0.25, "truncation": "auto", "store": False,
                 "reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 5}
        r = answer(s, **given)
        assert {k: r[k] for k in given} == given and r["background"] is False and r["previous_response_id"] is None, r
        r = answer(s)
        assert (r["metadata"], r["parallel_tool_calls"], r["tools"], r["tool_choice"], r["instructions"], r["store"]) == ({}, True, [], "auto", None, True), r
        assert r["text"] == {"format": {"type": "text"}} and r["reasoning"] == {"effort": None, "summary": None}, r


def test_codexs_requests_are_answered():
    tools = [{**WEATHER, "name": "shell"}, {"type": "namespace", "name": "x", "tools": []}, {"type": "web_search"}, {"type": "image_generation"},
             {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}}]
    codex = {"instructions": "You are Codex.", "store": False, "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0199", "parallel_tool_calls": True,
             "reasoning": {"effort": "medium", "summary": "auto"}, "tools": tools, "tool_choice": "auto", "max_output_tokens": ..., "text": {"verbosity": "low"}, "client_metadata": {"a": "b"}}
    said = "<think>\nhm\n</think>\n\nI look.\n" + PARIS.replace("get_weather", "shell")
    begun = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules. " * 40}]},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "what is here?"}]}]
    with Server("--mock-rate", "0", *HERMES, *scripts(said)) as s:
        r = joined(named_events(ask(s, **codex, input=begun, seed=SAY).body))
        assert kinds(r) == ["reasoning", "message", "function_call"] and r["output"][0]["encrypted_content"].startswith("quire:") and r["store"] is False, r
        call = r["output"][2]
        more = [*begun, *r["output"], {"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}]
        r2 = joined(named_events(ask(s, **codex, input=more, seed=SAY).body))
        assert r2["usage"]["input_tokens"] > r["usage"]["input_tokens"], (r["usage"], r2["usage"])
        assert answer(s, input=[], max_output_tokens=1)["status"] == "incomplete"
        assert answer(s, input="", max_output_tokens=1)["usage"]["output_tokens"] == 1


def refused(s, status=400, **fields):
    r = ask(s, **fields)
    assert r.status == status, (fields, r.body)
    return r.error()


def test_every_field_has_its_bounds():
    bad = [("input", ...), ("input", 1), ("input", {}), ("input[0]", ["x"]), ("input[0].role", [{"content": "x"}]), ("input[0].role", [{"role": "tool", "content": "x"}]),
           ("input[0].content", [{"role": "user"}]), ("input[0].content", [{"role": "user", "content": 5}]), ("input[0].content[0]", [{"role": "user", "content": ["x"]}]),
           ("input[0].content[0].type", [{"role": "user", "content": [{}]}]), ("input[0].content[0].text", [{"role": "user", "content": [{"type": "input_text"}]}]),
           ("input[0].content[0].type", [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]),
           ("input[0].content[0].type", [{"role": "user", "content": [{"type": "input_file"}]}]), ("input[0].content[0].type", [{"role": "user", "content": [{"type": "nonsense"}]}]),
           ("input[0].type", [{"type": "nonsense"}]), ("input[0].type", [{"type": 3}]), ("input[0].call_id", [{"type": "function_call", "name": "f", "arguments": "{}"}]),
           ("input[0].name", [{"type": "function_call", "call_id": "c", "arguments": "{}"}]), ("input[0].arguments", [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]),
           ("input[0].call_id", [{"type": "function_call_output", "output": "x"}]), ("input[0].output", [{"type": "function_call_output", "call_id": "c"}]),
           ("input[0].content", [{"type": "reasoning", "content": "x"}]), ("input[0].encrypted_content", [{"type": "reasoning", "summary": [], "encrypted_content": 1}])]
    rows = [*((at, "input", v) for at, v in bad), ("instructions", "instructions", 1), ("metadata", "metadata", "x"), ("store", "store", "yes"), ("include", "include", "x"),
            ("include[0]", "include", [1]), ("truncation", "truncation", "middle"), ("max_output_tokens", "max_output_tokens", 0), ("max_output_tokens", "max_output_tokens", 1.5),
            ("top_logprobs", "top_logprobs", -1), ("top_logprobs", "top_logprobs", 21), ("tools", "tools", {}), ("tools[0]", "tools", ["x"]), ("tools[0].type", "tools", [{"name": "f"}]),
            ("tools[0].name", "tools", [{"type": "function"}]), ("tools[0].name", "tools", [{"type": "function", "name": "a b"}]),
            ("tools[0].parameters", "tools", [{"type": "function", "name": "f", "parameters": 1}]), ("tool_choice", "tool_choice", "maybe"), ("tool_choice.name", "tool_choice", {"type": "function"}),
            ("tool_choice.tools", "tool_choice", {"type": "allowed_tools", "mode": "auto"}), ("tool_choice.mode", "tool_choice", {"type": "allowed_tools", "mode": "x", "tools": [{"type": "function", "name": "f"}]}),
            ("text", "text", "x"), ("text.format", "text", {"format": "json"}), ("text.format.type", "text", {"format": {}}), ("text.format.schema", "text", {"format": {"type": "json_schema", "name": "x"}}),
            ("text.verbosity", "text", {"verbosity": "loud"}), ("reasoning", "reasoning", "high"), ("reasoning.effort", "reasoning", {"effort": 3}), ("reasoning.summary", "reasoning", {"summary": "x"}),
            ("background", "background", True), ("background", "background", "x"), ("conversation", "conversation", "conv_1"), ("prompt", "prompt", {"id": "p"}), ("stream", "stream", 1),
            ("temperature", "temperature", 2.1), ("temperature", "temperature", -1), ("top_p", "top_p", 1.1), ("parallel_tool_calls", "parallel_tool_calls", 1)]
    with Server("--mock-rate", "0") as s:
        for at, field, value in rows:
            error = refused(s, **{field: value})
            assert error["param"] == at and error["type"] == "invalid_request_error", (at, value, error)
            assert error["message"].startswith(at) or field == "text", (at, error)
        assert ask(s, model="other").status == 404
        assert answer(s, background=False, include=[], tools=[], truncation="disabled", max_output_tokens=10**9)["status"] in ("completed", "incomplete")
        assert refused(s, input="x " * 9000)["code"] == "context_length_exceeded"
        assert post(s.port, RESPONSES, [1]).status == 400


def test_a_failure_in_a_stream_is_its_last_event():
    with Server("--mock-rate", "0", *HERMES, *scripts("I look.\n" + PARIS + "\n" + NOW)) as s:
        r = ask(s, seed=SAY, tools=[WEATHER])  # there is no get_time
        assert r.status == 500 and "grammar" in r.error()["message"], r.body
        r = ask(s, stream=True, seed=SAY, tools=[WEATHER])
        assert r.status == 200, r.body
        events = named_events(r.body)
        failed = events[-1]["response"]
        assert events[-1]["type"] == "response.failed" and failed["status"] == "failed" and kinds(failed)[:2] == ["message", "function_call"], events[-1]
        assert failed["error"]["code"] == "server_error" and "grammar" in failed["error"]["message"], failed
        same_stored(get(s.port, RESPONSES + "/" + failed["id"]), failed)


def delete(s, path, key=None):
    return call(s.port, "DELETE", path, None, {"Authorization": "Bearer " + key} if key else None)


def same_stored(stored, answer):
    """The very response; what is told of it may be told again."""
    assert stored.status == 200 and stored.json() == answer, (stored.body, answer)


def test_responses_are_stored_whole_and_streamed():
    with Server("--mock-rate", "0", *HERMES, *scripts(*SAID)) as s:
        for i in range(len(SAID)):
            for stream in (False, True):
                r = ask(s, seed=SAY + i, tools=[WEATHER, TIME], stream=stream, input=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "go"}])
                r = joined(named_events(r.body)) if stream else r.json()
                path = RESPONSES + "/" + r["id"]
                same_stored(get(s.port, path), r)
                items = get(s.port, path + "/input_items?order=asc").json()
                assert [(x["role"], x["content"][0]["type"], x["content"][0]["text"]) for x in items["data"]] == [
                    ("user", "input_text", "hi"), ("assistant", "output_text", "yes"), ("user", "input_text", "go")], items
                ids = [x["id"] for x in items["data"]]
                assert len(set(ids)) == 3 and all(x.startswith("msg_") for x in ids) and (items["object"], items["first_id"], items["last_id"], items["has_more"]) == ("list", ids[0], ids[2], False), items
                same_stored(post(s.port, path + "/cancel", {}), r)
                gone = delete(s, path)
                assert gone.status == 200 and gone.json() == {"id": r["id"], "object": "response", "deleted": True}, gone.body
                for again in (get(s.port, path), get(s.port, path + "/input_items"), post(s.port, path + "/cancel", {}), delete(s, path)):
                    assert again.status == 404 and again.error()["code"] == "not_found", again.body
        r = answer(s, store=False)
        assert get(s.port, RESPONSES + "/" + r["id"]).status == 404
        r = joined(named_events(ask(s, store=False, stream=True).body))
        assert get(s.port, RESPONSES + "/" + r["id"]).status == 404
        for path in ("/x", "/resp_", "/" + "x" * 300, "/resp_1/nonsense", "/resp_1/input_items/", "/%00", "/"):
            assert get(s.port, RESPONSES + path).status == 404, path
        wrong = post(s.port, RESPONSES + "/x", {})
        assert wrong.status == 404 and wrong.error()["code"] == "unknown_route", wrong.body


def test_input_items_come_in_pages():
    with Server("--mock-rate", "0", *HERMES) as s:
        tricky = ['a"b', "c\\", "}{][", '","id":"x"', "\n", "\u00e9", "{"]
        given = [{"role": "user", "content": tricky[i % len(tricky)] + str(i), "metadata": {"}": ["{", {"id": "no"}]}} for i in range(25)]
        given[7] = {"type": "message", "role": "user", "content": "own", "id": 'own "id"'}
        path = RESPONSES + "/" + answer(s, input=given)["id"] + "/input_items"
        every = get(s.port, path + "?order=asc&limit=100").json()
        ids = [x["id"] for x in every["data"]]
        assert [x["content"][0]["text"] for x in every["data"]] == [x["content"] for x in given] and len(set(ids)) == 25 and ids[7] == 'own "id"' and every["has_more"] is False, every
        assert every["data"][3]["metadata"] == given[3]["metadata"]

        def walk(order, limit):
            seen, after = [], ""
            while True:
                page = get(s.port, path + "?include[]=x&limit=%d%s%s" % (limit, order and "&order=" + order, after and "&after=" + after)).json()
                seen += [x["id"] for x in page["data"]]
                assert len(page["data"]) <= limit and (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"]), page
                if not page["has_more"]:
                    return seen
                assert len(page["data"]) == limit
                after = page["last_id"]
        for limit in (1, 6, 24, 25, 26, 100):
            if limit not in (1, 6):  # one of the ids would have to be percent-encoded
                assert walk("asc", limit) == ids and walk("desc", limit) == walk("", limit) == ids[::-1], limit
        path = RESPONSES + "/" + answer(s, input=[{"role": "user", "content": str(i)} for i in range(25)])["id"] + "/input_items"
        ids = [x["id"] for x in get(s.port, path + "?order=asc&limit=100").json()["data"]]
        for limit in (1, 6, 24, 25, 26):
            assert walk("asc", limit) == ids and walk("desc", limit) == walk("", limit) == ids[::-1], limit
        page = get(s.port, path).json()
        assert [x["id"] for x in page["data"]] == ids[:4:-1] and page["has_more"] is True, "twenty, from the newest on"
        page = get(s.port, path + "?order=asc&after=" + ids[-1]).json()
        assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}, page
        for query, name in (("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=-1", "limit"), ("limit=1e1", "limit"), ("limit=99999999999", "limit"), ("order=up", "order"), ("order=ascending", "order")):
            r = get(s.port, path + "?" + query)
            assert r.status == 400 and r.error()["param"] == name and r.error()["message"].startswith(name + " must be "), r.body
        for after in ("nonsense", "x" * 3000, ids[0] + "0"):
            r = get(s.port, path + "?after=" + after)
            assert r.status == 404 and r.error()["param"] == "after", r.body
        for query in ("?", "?&", "?limit=", "?=&order", "?order=desc&limit=20&after="):
            assert get(s.port, path + query).json() == get(s.port, path).json(), query
        empty = RESPONSES + "/" + answer(s, input=[])["id"] + "/input_items"
        assert get(s.port, empty).json()["data"] == []


def test_a_stored_response_is_not_streamed_again():
    with Server("--mock-rate", "0") as s:
        path = RESPONSES + "/" + answer(s)["id"]
        r = get(s.port, path + "?stream=true&starting_after=1")
        assert r.status == 400 and r.error()["param"] == "stream" and r.error()["code"] == "unsupported", r.body
        assert get(s.port, path + "?stream=false&include[]=x&include_obfuscation=true").status == 200


def test_input_tokens_are_counted():
    with Server("--mock-rate", "0", *HERMES) as s:
        first = answer(s, input="hi", max_output_tokens=5)["id"]
        for fields in ({}, {"instructions": "Be kind."}, {"tools": [WEATHER]}, {"previous_response_id": first}, {"input": []}):
            r = post(s.port, RESPONSES + "/input_tokens", {"input": "hi", **fields})
            assert r.status == 200 and r.json() == {"object": "response.input_tokens", "input_tokens": answer(s, max_output_tokens=1, **fields)["usage"]["input_tokens"]}, r.body
        r = post(s.port, RESPONSES + "/input_tokens", {"input": 1})
        assert r.status == 400 and r.error()["param"] == "input", r.body


def test_a_conversation_goes_on_from_a_stored_response():
    said = ("<think>\nhm\n</think>\n\nI look.\n" + PARIS, "It rains.")
    with Server("--mock-rate", "0", *HERMES, *scripts(*said)) as s:
        for stream in (False, True):
            def turn(**fields):
                r = ask(s, tools=[WEATHER], stream=stream, **fields)
                assert r.status == 200, r.body
                return joined(named_events(r.body)) if stream else r.json()
            first = turn(seed=SAY, input="rain?", instructions="Only now. " * 9)
            asking = first["output"][-1]
            result = {"type": "function_call_output", "call_id": asking["call_id"], "output": "yes, much of it"}
            second = turn(seed=SAY + 1, input=[result], previous_response_id=first["id"])
            third = turn(seed=SAY + 1, input="sure?", previous_response_id=second["id"], instructions="Be brief.")
            assert second["previous_response_id"] == first["id"] and third["previous_response_id"] == second["id"]
            asked = {"role": "user", "content": "rain?"}
            whole = [asked, *first["output"], result]
            flat = turn(seed=SAY + 1, input=whole)
            assert second["usage"]["input_tokens"] == flat["usage"]["input_tokens"], (second["usage"], flat["usage"])
            flat = turn(seed=SAY + 1, input=[*whole, *second["output"], {"role": "user", "content": "sure?"}], instructions="Be brief.")
            assert third["usage"]["input_tokens"] == flat["usage"]["input_tokens"], (third["usage"], flat["usage"])
            items = get(s.port, RESPONSES + "/" + third["id"] + "/input_items?order=asc").json()["data"]
            assert [x["type"] for x in items] == ["message", "reasoning", "message", "function_call", "function_call_output", "message", "message"], items
            refs = [asked, *({"type": "item_reference", "id": x["id"]} for x in first["output"]), result]
            again = turn(seed=SAY + 1, input=refs)
            assert again["usage"]["input_tokens"] == second["usage"]["input_tokens"], again
            branch = turn(seed=SAY + 1, input="other", previous_response_id=first["id"])
            assert branch["usage"]["input_tokens"] != second["usage"]["input_tokens"]
            assert delete(s, RESPONSES + "/" + first["id"]).status == 200
            assert turn(seed=SAY + 1, input="sure?", previous_response_id=second["id"])["usage"]["input_tokens"] > 0, "a conversation is stored whole"
            error = refused(s, 404, previous_response_id=first["id"])
            assert error["param"] == "previous_response_id" and error["message"].startswith("previous_response_id"), error
            assert refused(s, 404, input=[{"type": "item_reference", "id": asking["id"]}])["param"] == "input[0].id"
        for value in ("", "resp_", "x" * 500, "msg_1"):
            assert refused(s, 404, previous_response_id=value)["param"] == "previous_response_id"
            assert refused(s, 404, input=[{"type": "item_reference", "id": value}])["param"] == "input[0].id"
        assert refused(s, previous_response_id=7)["param"] == "previous_response_id"
        assert refused(s, input=[{"type": "item_reference"}])["param"] == "input[0].id"


def test_a_stored_response_is_its_keys_alone():
    with Server("--mock-rate", "0", "--api-key", "one", "--api-key", "two", "--admin-key", "boss", *HERMES) as s:
        one, two, boss = ({"Authorization": "Bearer " + k} for k in ("one", "two", "boss"))
        r = answer(s, one)
        path, item = RESPONSES + "/" + r["id"], r["output"][0]["id"]
        for other in (two, boss):
            for asked in (get(s.port, path, other), get(s.port, path + "/input_items", other), post(s.port, path + "/cancel", {}, other), ask(s, other, previous_response_id=r["id"]),
                          ask(s, other, input=[{"type": "item_reference", "id": item}])):
                assert asked.status == 404 and asked.error()["code"] == "not_found", asked.body
        assert delete(s, path, "two").status == 404 and get(s.port, path).status == 401
        same_stored(get(s.port, path, one), r)
        assert ask(s, one, previous_response_id=r["id"]).status == 200 and delete(s, path, "one").status == 200


def test_many_keys_at_once_see_their_own_alone_and_the_store_stays_within_its_bounds():
    keys = ["key-%d" % i for i in range(32)]
    made, seen = [], []
    with Server("--mock-rate", "0", "--responses-max", "20", "--responses-size", "64KiB", "--admin-key", "boss", *(x for k in keys for x in ("--api-key", k)), *HERMES) as s:
        def client(key):
            headers, last = {"Authorization": "Bearer " + key}, None
            for turn in range(6):
                stream = bool(turn % 2)
                r = ask(s, headers, input=[{"role": "user", "content": "I am %s. " % key * (1 + turn * 9)}], max_output_tokens=3, stream=stream, previous_response_id=last)
                if r.status == 404:  # others have taken its place
                    last = None
                    continue
                assert r.status == 200, r.body
                last = (joined(named_events(r.body)) if stream else r.json())["id"]
                made.append((key, last))
                for owner, other in made[-3:]:
                    for path in ("", "/input_items?order=asc&limit=100"):
                        r = get(s.port, RESPONSES + "/" + other + path, headers)
                        assert r.status == 404 or (r.status == 200 and owner == key), (owner, key, r.body)
                        if r.status == 200 and path:
                            texts = {x["content"][0]["text"].split(".")[0] for x in r.json()["data"] if x["role"] == "user"}
                            assert texts == {"I am " + key}, texts
                            seen.append(other)
                if turn == 3:
                    call(s.port, "DELETE", RESPONSES + "/" + made[-1][1], None, headers)
                m = metrics(s.port, {"Authorization": "Bearer boss"})
                assert m["quire_stored_responses"] <= 20 and m["quire_stored_responses_bytes"] <= 65536, m
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(client, keys))
        assert len(made) >= 32 and seen, (len(made), len(seen))


def test_one_that_runs_can_be_cancelled():
    with Server("--mock-rate", "20", "--api-key", "one", "--api-key", "two", *HERMES) as s:
        one, two = ({"Authorization": "Bearer " + k} for k in ("one", "two"))
        for store in (True, False):
            c = Connection(s.port)
            c.send(render("POST", RESPONSES, json.dumps({"input": "hi", "stream": True, "max_output_tokens": 400, "store": store}).encode(), one))
            assert c.head()[0] == 200
            begun = c.until(b"response.output_text.delta").decode()
            rid = begun.split('"id":"resp_')[1].split('"')[0]
            path = RESPONSES + "/resp_" + rid
            assert post(s.port, path + "/cancel", {}, two).status == 404 and get(s.port, path, one).status == 404
            r = post(s.port, path + "/cancel", {}, one)
            assert r.status == 200 and r.json()["status"] == "cancelled" and r.json()["error"] is None, r.body
            last = c.until(b"0\r\n\r\n").decode()
            assert "event: response.failed" in last and '"status":"cancelled"' in last, last
            assert get(s.port, path, one).status == (200 if store else 404)
            if store:
                assert post(s.port, path + "/cancel", {}, one).json()["status"] == get(s.port, path, one).json()["status"] == "cancelled"
            c.close()
        assert answer(s, one, max_output_tokens=2)["status"] == "incomplete"


def test_the_store_never_passes_its_bounds():
    with Server("--mock-rate", "0", "--responses-max", "5", *HERMES) as s, ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda i: answer(s, max_output_tokens=3, input="n %d" % i)["id"], range(40)))
        held = [x for x in ids if get(s.port, RESPONSES + "/" + x).status == 200]
        assert len(held) == 5 and metrics(s.port)["quire_stored_responses"] == 5, held
        newest = answer(s, max_output_tokens=3)["id"]
        assert get(s.port, RESPONSES + "/" + newest).status == 200 and sum(get(s.port, RESPONSES + "/" + x).status == 200 for x in held) == 4
    with Server("--mock-rate", "0", "--mock-ctx", "100000", "--responses-size", "64KiB", *HERMES) as s, ThreadPoolExecutor(8) as pool:
        for n in (300, 3000, 9000):
            ids = list(pool.map(lambda i: answer(s, max_output_tokens=3, input="x" * n)["id"], range(60)))
            m = metrics(s.port)
            held = sum(get(s.port, RESPONSES + "/" + x).status == 200 for x in ids)
            assert n <= m["quire_stored_responses_bytes"] <= 65536 and 0 < held < 60 and m["quire_stored_responses"] <= 60, (n, held, m["quire_stored_responses_bytes"])
        big = answer(s, max_output_tokens=3, input="x" * 70000)["id"]
        assert get(s.port, RESPONSES + "/" + big).status == 404 and get(s.port, RESPONSES + "/" + ids[-1]).status == 200, "one too large displaces none"
    with Server("--mock-rate", "0", "--responses-max", "0", *HERMES) as s:
        r = answer(s)
        assert get(s.port, RESPONSES + "/" + r["id"]).status == 404 and metrics(s.port)["quire_stored_responses"] == 0


@with_patience
def test_a_stored_response_goes_when_its_time_is_over(scale):
    with Server("--mock-rate", "0", "--responses-ttl", "%ds" % scale, *HERMES) as s:
        path = RESPONSES + "/" + answer(s)["id"]
        assert get(s.port, path).status == 200
        time.sleep(1.2 * scale)
        assert get(s.port, path).status == 404 and metrics(s.port)["quire_stored_responses_bytes"] == 0


def test_answers_at_once_do_not_mix():
    with Server("--mock-rate", "0", "--mock-running", "4", *HERMES, *scripts(*SAID)) as s, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: same_in_a_stream(s, seed=SAY + i % len(SAID), tools=[WEATHER, TIME]), range(64)))


if __name__ == "__main__":
    run_tests(globals())
