"""Anthropic's Messages API: bodies as its clients send them, answers whole and streamed, errors in its form. The mock engine says what a script says."""
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import model
from lib import Server, Skip, post, run_tests

MESSAGES, COUNT, CHAT = "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
SAY = 500000
THINKING = model.TEMPLATE.replace("{%- if m.content is string", "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{%- if m.content is string").replace(
    "assistant\\n' }}{% endif %}", """assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}""")
HERMES = ("--tool-format", "hermes", "--model", model.make(THINKING))
WEATHER = {"name": "get_weather", "description": "Says it.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"], "additionalProperties": False}}
TIME = {"name": "get_time", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}
PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
HI = [{"role": "user", "content": "hi"}]


def scripts(*texts):
    return [x for t in texts for x in ("--mock-script", t)]


def ask(s, path=MESSAGES, headers=None, **fields):
    body = {"model": "mock", "max_tokens": 400, "messages": HI, **fields}
    return post(s.port, path, {k: v for k, v in body.items() if v is not ...}, headers)


def named_events(body):
    """(name, data) of each event; comments are left out, and the name is the data's type."""
    out = []
    for block in body.decode().rstrip("\n").split("\n\n"):
        if block.startswith(":"):
            continue
        first, second = block.split("\n")
        assert first.startswith("event: ") and second.startswith("data: "), block
        data = json.loads(second[6:])
        assert data["type"] == first[7:], block
        out.append(data)
    return out


def order_of(events):
    """What kinds of events follow one another: runs of deltas are one, pings and empty deltas are left out."""
    out = []
    for e in events:
        kind = e["type"]
        if kind == "content_block_start":
            kind += " " + e["content_block"]["type"]
        if kind == "content_block_delta":
            kind += " " + e["delta"]["type"]
        if kind != "ping" and (not out or out[-1] != kind):
            out.append(kind)
    return out


def joined(events):
    """The message that a client makes of a stream."""
    message, arguments = None, {}
    assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop" and events[-2]["type"] == "message_delta", order_of(events)
    open_block = None
    for e in events:
        if e["type"] == "message_start":
            message = e["message"]
            assert message["content"] == [] and message["stop_reason"] is None and message["stop_sequence"] is None, message
        elif e["type"] == "content_block_start":
            assert open_block is None and e["index"] == len(message["content"]), e
            open_block = e["index"]
            message["content"].append(e["content_block"])
        elif e["type"] == "content_block_delta":
            assert e["index"] == open_block, e
            block, delta = message["content"][-1], e["delta"]
            if delta["type"] == "input_json_delta":
                arguments[open_block] = arguments.get(open_block, "") + delta["partial_json"]
            else:
                key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}[delta["type"]]
                block[key] += delta[key]
        elif e["type"] == "content_block_stop":
            assert e["index"] == open_block, e
            if message["content"][-1]["type"] == "tool_use":
                assert message["content"][-1]["input"] == {}
                try:
                    message["content"][-1]["input"] = json.loads(arguments[open_block])
                except ValueError:  # cut off
                    assert open_block == len(message["content"]) - 1
            open_block = None
        elif e["type"] == "message_delta":
            assert open_block is None
            message.update(e["delta"])
            message["usage"].update(e["usage"])
    return message


def same_in_a_stream(s, **fields):
    """The whole answer, after it was seen to be the stream's; ids may differ, and what was cached."""
    r = ask(s, **fields)
    assert r.status == 200, (str(fields)[:200], r.body)
    whole = r.json()
    assert set(whole) == {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"} and whole["id"].startswith("msg_"), whole
    r = ask(s, stream=True, **fields)
    assert r.status == 200 and r.headers["content-type"].startswith("text/event-stream"), r.body
    streamed = joined(named_events(r.body))

    def told(m):
        assert all(b.pop("id").startswith("toolu_") for b in m["content"] if b["type"] == "tool_use"), m
        usage = m["usage"]
        return {**m, "id": None, "usage": (usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"], usage["cache_creation_input_tokens"])}
    assert told(whole) == told(streamed), (whole, streamed)
    return whole


def kinds(message):
    return [b["type"] for b in message["content"]]


def test_a_stream_joined_is_the_whole_answer():
    said = ("just text", "I look.\n" + PARIS, PARIS + "\n" + NOW, "<think>\nhm\n</think>\n\nIt is 4.", "<think>\nhm\n</think>\n\nFirst.\n" + PARIS, "&<>\"\\ \u00e9", "<think>\nno end", NOW)
    with Server("--mock-rate", "0", *HERMES, *scripts(*said)) as s:
        tools = [WEATHER, TIME]
        m = [same_in_a_stream(s, seed=SAY + i, tools=tools) for i in range(len(said))]
        assert m[0]["content"] == [{"type": "text", "text": "just text"}] and m[0]["stop_reason"] == "end_turn" and m[0]["stop_sequence"] is None, m[0]
        assert kinds(m[1]) == ["text", "tool_use"] and m[1]["stop_reason"] == "tool_use" and m[1]["content"][1]["input"] == {"city": "Paris", "days": 2}, m[1]
        assert [b["name"] for b in m[2]["content"]] == ["get_weather", "get_time"] and m[2]["content"][1]["input"] == {}, m[2]
        assert kinds(m[3]) == ["thinking", "text"] and m[3]["content"][0]["thinking"].strip() == "hm" and m[3]["content"][0]["signature"], m[3]
        assert kinds(m[4]) == ["thinking", "text", "tool_use"] and m[4]["stop_reason"] == "tool_use", m[4]
        assert kinds(m[6]) == ["thinking"] and m[7]["content"][0]["input"] == {}, m[6:]
        for i, text in enumerate(said):
            for n in (1, 3, 12, 30):
                cut = same_in_a_stream(s, seed=SAY + i, tools=tools, max_tokens=n)
                assert cut["usage"]["output_tokens"] <= n and (cut["stop_reason"] == "max_tokens" or cut["stop_reason"] == m[i]["stop_reason"]), cut
    with Server("--mock-rate", "0", *scripts("one. two. three.", "x")) as s:
        stopped = same_in_a_stream(s, seed=SAY, stop_sequences=["four", "two"])
        assert stopped["stop_reason"] == "stop_sequence" and stopped["stop_sequence"] == "two" and stopped["content"][0]["text"].startswith("one. "), stopped
        assert same_in_a_stream(s, seed=SAY, max_tokens=100000)["stop_reason"] == "end_turn", "a bound above the context is one"


def test_events_have_the_recorded_order():
    data = os.path.join(os.environ.get("QUIRE_DATA", os.path.join(os.path.dirname(__file__), "../../../shared/data")), "answers", "api", "sse")
    if not os.path.exists(data):
        raise Skip("no recorded streams (QUIRE_DATA): " + data)
    with Server("--mock-rate", "0", *HERMES, *scripts("Hello there!", "I look.\n" + PARIS)) as s:
        for i, name in enumerate(("messages_basic_response", "messages_tool_use_response")):
            with open(os.path.join(data, name + ".sse"), "rb") as f:
                recorded = named_events(f.read())
            ours = named_events(ask(s, seed=SAY + i, tools=[WEATHER], stream=True).body)
            assert order_of(ours) == order_of(recorded), (order_of(ours), order_of(recorded))
            for kind in ("message_start", "message_delta"):
                a, b = [next(e for e in stream if e["type"] == kind) for stream in (ours, recorded)]
                assert set(b) <= set(a) and set(b.get("message", b.get("delta"))) <= set(a.get("message", a.get("delta"))), (a, b)


def counted(s, **fields):
    r = ask(s, COUNT, max_tokens=..., **fields)
    assert r.status == 200, r.body
    assert set(r.json()) == {"input_tokens"}
    return r.json()["input_tokens"]


def prompt_of(s, messages, **fields):
    """What a chat request's conversation is to the model."""
    r = post(s.port, "/tokenize", {"messages": messages, **fields})
    assert r.status == 200, r.body
    return r.json()["count"]


def test_the_conversation_is_what_chat_makes_of_it():
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
    chat_call = {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
    cases = [
        ({"messages": HI}, {"messages": HI}),
        ({"system": "Be kind.", "messages": HI}, {"messages": [{"role": "system", "content": "Be kind."}, *HI]}),
        ({"system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be brief."}], "messages": HI},
         {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}]}, *HI]}),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "unheard_of", "x": [1]}, {"type": "text", "text": "b"}]}]},
         {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}),
        ({"messages": [*HI, {"role": "assistant", "content": [{"type": "thinking", "thinking": "why", "signature": "x"}, {"type": "redacted_thinking", "data": "y"},
                                                              {"type": "text", "text": "look"}, call]},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "warm"}], "is_error": False},
                                                    {"type": "text", "text": "and?"}]}], "tools": [WEATHER]},
         {"messages": [*HI, {"role": "assistant", "content": "look", "reasoning_content": "why", "tool_calls": [chat_call]},
                       {"role": "tool", "tool_call_id": "toolu_1", "content": "warm"}, {"role": "user", "content": "and?"}],
          "tools": [{"type": "function", "function": {"name": "get_weather"}}]}),
        ({"messages": [*HI, {"role": "assistant", "content": [call]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}]},
         {"messages": [*HI, {"role": "assistant", "content": None, "tool_calls": [chat_call]}, {"role": "tool", "tool_call_id": "toolu_1", "content": ""}]}),
        ({"messages": [*HI, {"role": "system", "content": "Now be brief."}, {"role": "user", "content": "go"}]},
         {"messages": [*HI, {"role": "system", "content": "Now be brief."}, {"role": "user", "content": "go"}]}),
        ({"messages": [*HI, {"role": "assistant", "content": "The answer is ("}]},
         {"messages": [*HI, {"role": "assistant", "content": "The answer is ("}], "continue_final_message": True, "add_generation_prompt": False}),
        ({"messages": HI, "thinking": {"type": "disabled"}}, {"messages": HI, "enable_thinking": False}),
        ({"messages": [{"role": "user", "content": []}]}, {"messages": [{"role": "user", "content": ""}]}),
    ]
    with Server("--mock-rate", "0", *HERMES) as s:
        for ours, chat in cases:
            assert counted(s, **ours) == prompt_of(s, **chat), ours
            usage = ask(s, max_tokens=1, **ours).json()["usage"]
            assert usage["input_tokens"] + usage["cache_read_input_tokens"] == prompt_of(s, **chat), (usage, ours)


def test_an_answer_is_chats_under_other_names():
    with Server("--mock-rate", "0", *HERMES, *scripts("<think>\nhm\n</think>\n\nYes.\n" + PARIS)) as s:
        ours = ask(s, seed=SAY, tools=[WEATHER]).json()
        chat = post(s.port, CHAT, {"messages": HI, "max_tokens": 400, "seed": SAY, "tools": [{"type": "function", "function": {
            "name": "get_weather", "description": "Says it.", "parameters": WEATHER["input_schema"]}}]}).json()
        message = chat["choices"][0]["message"]
        assert ours["content"][0]["thinking"] == message["reasoning_content"] and ours["content"][1]["text"] == message["content"], (ours, message)
        assert ours["content"][2]["input"] == json.loads(message["tool_calls"][0]["function"]["arguments"]), (ours, message)
        assert ours["usage"]["output_tokens"] == chat["usage"]["completion_tokens"], (ours, chat)


def test_tools_and_formats_bind_as_in_chat():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    with Server("--mock-rate", "0", *HERMES, *scripts(PARIS, '{"a": 1}', "no call", NOW)) as s:
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}, {"type": "auto"}, {"type": "any", "disable_parallel_tool_use": True}):
            m = same_in_a_stream(s, seed=SAY, tools=[{"type": "web_search_20250305", "name": "web_search"}, WEATHER], tool_choice=choice)
            assert m["stop_reason"] == "tool_use" and m["content"][0]["name"] == "get_weather", m
        assert ask(s, seed=SAY + 2, tools=[WEATHER], tool_choice={"type": "any"}).status == 500, "the mock says what the grammar does not take"
        assert ask(s, seed=SAY + 3, tools=[WEATHER, TIME], tool_choice={"type": "tool", "name": "get_weather"}).status == 500
        m = same_in_a_stream(s, seed=SAY + 2, tools=[WEATHER], tool_choice={"type": "none"})
        assert kinds(m) == ["text"] and m["stop_reason"] == "end_turn", m
        m = same_in_a_stream(s, seed=SAY + 1, output_config={"format": {"type": "json_schema", "schema": schema}, "effort": None}, thinking={"type": "disabled"})
        assert json.loads(m["content"][0]["text"]) == {"a": 1}, m
        r = ask(s, seed=SAY + 2, output_config={"format": {"type": "json_schema", "schema": schema}}, thinking={"type": "disabled"})
        assert r.status == 500 and r.json()["error"]["type"] == "api_error", r.body


def error_of(r):
    body = r.json()
    assert set(body) == {"type", "error"} and body["type"] == "error" and set(body["error"]) == {"type", "message"}, body
    assert not re.search("0x[0-9a-fA-F]{6,}", body["error"]["message"]), body
    return body["error"]


def test_every_field_has_its_bounds():
    user = lambda *blocks: {"messages": [{"role": "user", "content": list(blocks)}]}
    assistant = lambda *blocks: {"messages": [*HI, {"role": "assistant", "content": list(blocks)}, *HI]}
    bad = [({"max_tokens": ...}, "max_tokens is required"), ({"max_tokens": 0}, "max_tokens must"), ({"max_tokens": "1"}, "max_tokens must"), ({"max_tokens": 1.5}, "max_tokens must"),
           ({"max_tokens": 2 ** 31}, "max_tokens must"), ({"messages": ...}, "messages is required"), ({"messages": []}, "messages must"), ({"messages": "x"}, "messages must"), ({"messages": [1]}, "messages[0] must"),
           ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role must"), ({"messages": [{"content": "x"}]}, "messages[0].role must"),
           ({"messages": [{"role": "user"}]}, "messages[0].content is required"), ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content must"),
           (user(1), "messages[0].content[0] must"), (user({}), "messages[0].content[0].type must"), (user({"type": "text"}), "messages[0].content[0].text is required"),
           (user({"type": "text", "text": 1}), "messages[0].content[0].text must"), (user({"type": "text", "text": "a"}, {"type": "image", "source": {}}), 'messages[0].content[1].type: "image" is not supported'),
           (user({"type": "document"}), 'messages[0].content[0].type: "document" is not supported'), (user({"type": "tool_result"}), "messages[0].content[0].tool_use_id is required"),
           (user({"type": "tool_result", "tool_use_id": "a", "content": 1}), "messages[0].content[0].content must"), (user({"type": "tool_result", "tool_use_id": "a", "is_error": "no"}), "messages[0].content[0].is_error must"),
           (user({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}), 'messages[0].content[0].content[0].type: "image" is not supported'),
           (assistant({"type": "tool_use", "name": "f", "input": {}}), "messages[1].content[0].id is required"), (assistant({"type": "tool_use", "id": "a", "input": {}}), "messages[1].content[0].name is required"),
           (assistant({"type": "tool_use", "id": "a", "name": "f", "input": "{}"}), "messages[1].content[0].input must"), (assistant({"type": "thinking"}), "messages[1].content[0].thinking is required"),
           ({"system": 1}, "system must"), ({"system": [{"type": "text"}]}, "system[0].text is required"), ({"system": [1]}, "system[0] must"),
           ({"tools": {}}, "tools must"), ({"tools": [1]}, "tools[0] must"), ({"tools": [{"name": "f"}]}, "tools[0].input_schema is required"), ({"tools": [{"name": "f g", "input_schema": {}}]}, "tools[0].name must"),
           ({"tools": [{"type": "web_search_20250305"}, {"input_schema": {}}]}, "tools[1].name must"), ({"tools": [{"name": "f", "input_schema": 1}]}, "tools[0].input_schema must"),
           ({"tools": [{"name": "f", "input_schema": {}, "description": 1}]}, "tools[0].description must"), ({"tools": [{"type": 1, "name": "f", "input_schema": {}}]}, "tools[0].type must"),
           ({"tools": [{"name": "f%d" % i, "input_schema": {}} for i in range(129)]}, "tools must have at most 128"),
           ({"tool_choice": "auto"}, "tool_choice must"), ({"tool_choice": {"type": "required"}}, "tool_choice.type must"), ({"tool_choice": {"type": "tool"}, "tools": [WEATHER]}, "tool_choice.name is required"),
           ({"tool_choice": {"type": "tool", "name": "g"}, "tools": [WEATHER]}, "tool_choice names the tool 'g'"), ({"tool_choice": {"type": "any"}}, 'tool_choice "required" needs tools'),
           ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}, "tools": [WEATHER]}, "tool_choice.disable_parallel_tool_use must"),
           ({"stop_sequences": "x"}, "stop_sequences must"), ({"stop_sequences": ["a", ""]}, "stop_sequences[1] must"), ({"stop_sequences": ["x"] * 17}, "stop_sequences must have at most 16"), ({"stop_sequences": [1]}, "stop_sequences[0] must"),
           ({"temperature": 1.01}, "temperature must"), ({"temperature": -0.1}, "temperature must"), ({"temperature": "1"}, "temperature must"), ({"top_p": 1.1}, "top_p must"), ({"top_k": 1.5}, "top_k must"), ({"top_k": -2}, "top_k must"),
           ({"thinking": "on"}, "thinking must"), ({"thinking": {"type": "maybe"}}, "thinking.type must"), ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens must"),
           ({"thinking": {"type": "enabled", "budget_tokens": 2 ** 31}}, "thinking.budget_tokens must"), ({"output_config": []}, "output_config must"), ({"output_config": {"effort": 1}}, "output_config.effort must"),
           ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type must"), ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema is required"),
           ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "nonsense"}}}}, "output_config.format.schema"), ({"stream": 1}, "stream must"), ({"model": 1}, "model must")]
    good = [{"max_tokens": 1}, {"temperature": 0}, {"temperature": 1}, {"top_p": 1}, {"top_k": 0}, {"stop_sequences": []}, {"stop_sequences": ["x" * 256] * 16}, {"system": ""}, {"system": []}, {"tools": []},
            {"metadata": {"user_id": "x"}}, {"unheard_of": 1}, {"service_tier": "auto"}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "adaptive"}},
            {"thinking": {"type": "disabled"}}, {"output_config": {}}, {"tool_choice": {"type": "none"}}, {"stream": False}, {"container": None, "temperature": None, "stop_sequences": None},
            {"tools": [{"name": "f" * 64, "input_schema": {}, "type": "custom", "cache_control": {"type": "ephemeral"}}]}, {"tools": [{"type": "bash_20250124", "name": "bash"}], "tool_choice": {"type": "auto"}}]
    with Server("--mock-rate", "0", *HERMES) as s:
        for fields, begins in bad:
            r = ask(s, **fields)
            assert r.status == 400, (fields, r.body)
            error = error_of(r)
            assert error["type"] == "invalid_request_error" and error["message"].startswith(begins), (error, begins)
        for fields in good:
            r = ask(s, **{"max_tokens": 4, **fields})
            assert r.status == 200, (fields, r.body)
        r = ask(s, messages=[{"role": "user", "content": "x" * 6000}])
        assert r.status == 400 and error_of(r)["message"].startswith("prompt is too long"), r.body


def test_a_thread_is_refused_with_what_lets_the_client_go_on_without():
    with Server("--mock-rate", "0") as s:
        for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}):
            for stream in (False, True):
                r = ask(s, thread=thread, stream=stream)
                error = r.json()["error"]
                assert r.status == 400 and error["message"].startswith("thread: ") and error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}, r.body
        assert ask(s, thread=None).status == 200


def test_errors_have_their_types_and_statuses():
    with Server("--mock-rate", "0", "--api-key", "secret", *scripts('{"a": 1}', '{"a": x}')) as s:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
        for headers in ({}, {"x-api-key": "wrong"}):
            r = ask(s, headers=headers)
            assert r.status == 401 and error_of(r)["type"] == "authentication_error", r.body
        key = {"x-api-key": "secret", "anthropic-version": "2023-06-01"}
        r = ask(s, headers=key)
        assert r.status == 200 and r.headers["request-id"] == r.headers["x-request-id"], r.headers
        r = ask(s, headers=key, model="another")
        assert r.status == 404 and error_of(r)["type"] == "not_found_error", r.body
        r = post(s.port, MESSAGES, b"{", key)
        assert r.status == 400 and "JSON" in error_of(r)["message"], r.body
        r = post(s.port, MESSAGES, b"x" * (5 << 20), key)
        assert r.status == 413 and error_of(r)["type"] == "request_too_large", r.body
        r = post(s.port, MESSAGES + "/batches", {}, key)
        assert r.status == 404 and error_of(r)["type"] == "not_found_error", r.body
        r = ask(s, headers=key, seed=SAY + 1, stream=True, output_config={"format": {"type": "json_schema", "schema": schema}})
        assert r.status == 200, r.body
        events = named_events(r.body)
        assert events[0]["type"] == "message_start" and events[-1]["type"] == "error" and events[-1]["error"]["type"] == "api_error", events
        assert not any(e["type"] in ("message_delta", "message_stop") for e in events), events
        text = {"type": "text", "text": "x"}
        r = ask(s, headers=key, stream=True, messages=[{"role": "user", "content": [text, {"type": "image"}]}])
        assert r.status == 400 and error_of(r)["type"] == "invalid_request_error", "nothing has been streamed yet"
    with Server("--mock-load", "2s", wait=False) as s:
        r = ask(s)
        assert r.status == 529 and error_of(r)["type"] == "overloaded_error" and r.headers["retry-after"], r.body
    with Server("--mock-rate", "1", "--mock-running", "1", "--mock-waiting", "0") as s:
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda i: ask(s, max_tokens=3), range(3)))
        full = [r for r in answers if r.status == 429]
        assert full and all(error_of(r)["type"] == "rate_limit_error" for r in full), [r.body for r in answers]


def claude_code(cch, text, *more):
    """A request in the shape that Claude Code 2.1 sends: a first system block that differs each time, cache_control, a system message behind the user's first,
    tools of the vendor's own, beta fields."""
    return {"max_tokens": 32000, "stream": True, "temperature": 1, "metadata": {"user_id": "user_0_account__session_0"},
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.36.abc; cc_entrypoint=cli; cch=%s;" % cch},
                       {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
                       {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nnone\n</system-reminder>"}, {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]},
                         {"role": "system", "content": "# Environment\n - Platform: linux"}, *more],
            "tools": [{**WEATHER, "input_schema": {**WEATHER["input_schema"], "$schema": "http://json-schema.org/draft-07/schema#"}}, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
                      {**TIME, "description": "Says it.", "defer_loading": True}],
            "thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"}, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}


def test_claude_codes_requests_are_answered():
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14", "x-app": "cli"}
    with Server("--mock-rate", "0", *HERMES, *scripts("<think>\nhm\n</think>\n\nI look.\n" + PARIS, "Warm.")) as s:
        r = ask(s, MESSAGES + "?beta=true", headers, seed=SAY, **claude_code("0a1b2", "weather?"))
        assert r.status == 200, r.body
        turn = joined(named_events(r.body))
        assert kinds(turn) == ["thinking", "text", "tool_use"] and turn["stop_reason"] == "tool_use", turn
        result = {"type": "tool_result", "tool_use_id": turn["content"][2]["id"], "content": "warm", "cache_control": {"type": "ephemeral"}}
        more = [{"role": "assistant", "content": turn["content"]}, {"role": "user", "content": [result]}, {"role": "system", "content": "Tools may have changed."}]
        r = ask(s, MESSAGES + "?beta=true", headers, seed=SAY + 1, **claude_code("ffff0f", "weather?", *more))
        assert r.status == 200, r.body
        assert joined(named_events(r.body))["content"] == [{"type": "text", "text": "Warm."}]
        a, b = [{k: v for k, v in claude_code(cch, "weather?").items() if k != "max_tokens"} for cch in ("0a1b2", "0a1b2 and much more that would be tokens")]
        without = {**a, "system": a["system"][1:]}
        assert counted(s, **a) == counted(s, **b) == counted(s, **without), "the billing header is not a part of the prompt"
        assert counted(s, **{**a, "system": a["system"][:1]}) == counted(s, **{**a, "system": ...}), "nothing of the system prompt is left"
        r = ask(s, max_tokens=1, messages=[{"role": "user", "content": "quota"}], metadata={"user_id": "x"})
        assert r.status == 200 and r.json()["usage"]["output_tokens"] == 1, r.body


def test_a_template_that_knows_no_later_system_message_has_it_in_the_users():
    """Claude Code sends one behind the first message, and templates of Mistral, Gemma and Qwen raise there."""
    strict = model.TEMPLATE.replace("{%- for m in messages %}", "{%- for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
                                    "{% if not loop.first and m.role == 'user' and messages[loop.index0 - 1].role == 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}", 1)
    user, later = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"role": "system", "content": "# Environment"}
    joined = {"role": "user", "content": [*user["content"], {"type": "text", "text": "# Environment"}]}
    yes = {"role": "assistant", "content": "yes"}
    with Server("--mock-rate", "0", "--model", model.make(strict)) as s:
        for given, meant in (([user, later], [joined]), ([user, later, yes, {"role": "user", "content": "c"}], [joined, yes, {"role": "user", "content": "c"}]),
                             ([user, yes, later], [user, yes, {"role": "user", "content": "# Environment"}]), ([user, later, later], [{**joined, "content": [*joined["content"], joined["content"][-1]]}])):
            for system in (..., "Be kind."):
                front = [] if system is ... else [{"role": "system", "content": system}]
                assert counted(s, messages=given, system=system) == prompt_of(s, front + meant), given
                r = post(s.port, CHAT + "/render", {"messages": front + given})
                assert r.json()["token_ids"] == post(s.port, CHAT + "/render", {"messages": front + meant}).json()["token_ids"], r.body
        r = ask(s, messages=[*HI, *HI])
        assert r.status == 400 and "roles must alternate" in error_of(r)["message"], r.body


def test_thinking_may_have_a_budget():
    with Server("--mock-rate", "0", *HERMES, *scripts("<think>\n" + "hm " * 40 + "\n</think>\n\nIt is 4.")) as s:
        m = same_in_a_stream(s, seed=SAY, thinking={"type": "enabled", "budget_tokens": 1024})
        assert kinds(m) == ["thinking", "text"], m
        m = same_in_a_stream(s, seed=SAY, thinking={"type": "enabled"})
        assert kinds(m) == ["thinking", "text"], m


if __name__ == "__main__":
    run_tests(globals())
