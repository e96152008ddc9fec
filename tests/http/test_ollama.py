"""ollama's API: chat and generate streamed as lines and whole, what its clients ask of a server, errors in its form. The mock engine says what a script says."""
import json
import re

import model
from lib import Server, call, get, post, run_tests
from test_messages import HERMES, NOW, PARIS, SAY, TIME, WEATHER, scripts

CHAT, GENERATE = "/api/chat", "/api/generate"
HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": t["name"], "parameters": t["input_schema"]}} for t in (WEATHER, TIME)]
END = {"done", "done_reason", "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"}


def ask(s, path=CHAT, seed=SAY, options=None, **fields):
    body = {"model": "mock", "options": options if isinstance(options, list) else {"seed": seed, "num_predict": 400, **(options or {})}, **({"messages": HI} if path == CHAT else {"prompt": "hi"}), **fields}
    return post(s.port, path, {k: v for k, v in body.items() if v is not ...})


def lines(r):
    assert r.status == 200 and r.headers["content-type"] == "application/x-ndjson" and r.body.endswith(b"\n"), (r.headers, r.body)
    return [json.loads(line) for line in r.body.decode().splitlines()]


def said(path, line):
    return line["message"] if path == CHAT else {"content": line["response"], **({"thinking": line["thinking"]} if "thinking" in line else {})}


def same_in_a_stream(s, path=CHAT, **fields):
    """What the whole answer says, after it was seen to be the stream's."""
    whole = ask(s, path, stream=False, **fields)
    assert whole.status == 200 and whole.headers["content-type"] == "application/json", whole.body
    whole = whole.json()
    stream = lines(ask(s, path, **fields))  # streamed where the body does not say
    assert [line["done"] for line in stream] == [False] * (len(stream) - 1) + [True] and END <= set(stream[-1]) and END <= set(whole), stream[-1]
    joined = {"content": "", "thinking": "", "tool_calls": []}
    for line in stream:
        assert line["model"] == "mock" and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["created_at"]), line
        m = said(path, line)
        for key in joined:
            joined[key] += m.get(key, type(joined[key])())
    m = {"thinking": "", "tool_calls": [], **said(path, whole)}
    for calls in (m["tool_calls"], joined["tool_calls"]):
        assert all(c.pop("id") for c in calls)
    assert joined == {k: m[k] for k in joined}, (joined, m)
    assert all(stream[-1][k] == whole[k] for k in ("done_reason", "eval_count", "prompt_eval_count")), (stream[-1], whole)
    return {**m, "reason": whole["done_reason"], "n": whole["eval_count"], "n_prompt": whole["prompt_eval_count"]}


def test_a_stream_joined_is_the_whole_answer():
    with Server("--mock-rate", "0", *HERMES, *scripts("just text", "I look.\n" + PARIS + "\n" + NOW, "<think>\nhm\n</think>\n\nIt is 4.", '{"a": 1}')) as s:
        m = same_in_a_stream(s, tools=TOOLS)
        assert m["content"] == "just text" and m["reason"] == "stop" and not m["tool_calls"], m
        m = same_in_a_stream(s, seed=SAY + 1, tools=TOOLS)
        assert [c["function"] for c in m["tool_calls"]] == [{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}, {"name": "get_time", "arguments": {}}], m
        for path in (CHAT, GENERATE):
            m = same_in_a_stream(s, path, seed=SAY + 2)
            assert m["content"] == "It is 4." and m["thinking"].strip() == "hm", m
            m = same_in_a_stream(s, path, seed=SAY, options={"num_predict": 2})
            assert m["reason"] == "length" and m["n"] == 2, m
            schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
            for form in ("json", schema):
                assert json.loads(same_in_a_stream(s, path, seed=SAY + 3, format=form, think=False)["content"]) == {"a": 1}
            assert ask(s, path, seed=SAY, format=schema, think=False, stream=False).status == 500, "the mock says what the schema does not take"
            assert same_in_a_stream(s, path, seed=SAY, options={"num_predict": -1, "num_ctx": 8192, "stop": ["text"], "unheard_of": 1}, keep_alive="5m", format="")["reason"] == "stop"


def test_lines_have_the_order_that_clients_wait_for():
    def kind(path, line):
        m = said(path, line)
        assert set(line) - {"logprobs"} == {"model", "created_at", "done", "message" if path == CHAT else "response"} | (END if line["done"] else set()), line
        assert path != CHAT or (m["role"] == "assistant" and isinstance(m["content"], str)), line
        kinds = [k for k in ("thinking", "tool_calls", "content") if m.get(k)]
        assert len(kinds) == (0 if line["done"] else 1), line
        return "end" if line["done"] else kinds[0]
    with Server("--mock-rate", "0", *HERMES, *scripts("Hello", "<think>\nhm\n</think>\n\nI look.\n" + PARIS + "\n" + NOW)) as s:
        for i, order in enumerate((["content", "end"], ["thinking", "content", "tool_calls", "tool_calls", "end"])):
            found = [kind(CHAT, line) for line in lines(ask(s, seed=SAY + i, tools=TOOLS))]
            assert [k for n, k in enumerate(found) if n == 0 or k != found[n - 1] or k == "tool_calls"] == order, found
        found = [kind(GENERATE, line) for line in lines(ask(s, GENERATE, seed=SAY))]
        assert found[-1] == "end" and set(found[:-1]) == {"content"}, found


def test_an_answer_is_chats_under_other_names():
    with Server("--mock-rate", "0", *HERMES, *scripts("<think>\nhm\n</think>\n\nYes.\n" + PARIS)) as s:
        call_ = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
        ours = [*HI, {"role": "assistant", "content": "", "thinking": "why", "tool_calls": [call_]}, {"role": "tool", "content": "warm", "tool_name": "get_weather"}, *HI]
        theirs = [*HI, {"role": "assistant", "content": "", "reasoning_content": "why", "tool_calls": [call_]}, {"role": "tool", "content": "warm"}, *HI]
        m = same_in_a_stream(s, messages=ours, tools=TOOLS)
        r = post(s.port, "/v1/chat/completions", {"messages": theirs, "tools": TOOLS, "seed": SAY, "max_tokens": 400}).json()
        chat = r["choices"][0]["message"]
        assert m["content"] == chat["content"] and m["thinking"] == chat["reasoning_content"] and m["n"] == r["usage"]["completion_tokens"], (m, chat)
        assert m["n_prompt"] == r["usage"]["prompt_tokens"] and m["tool_calls"][0]["function"]["arguments"] == json.loads(chat["tool_calls"][0]["function"]["arguments"])
        m = same_in_a_stream(s, GENERATE, system="Be kind.", prompt="hi")
        r = post(s.port, "/v1/chat/completions", {"messages": [{"role": "system", "content": "Be kind."}, *HI], "seed": SAY, "max_tokens": 400}).json()
        assert m["n_prompt"] == r["usage"]["prompt_tokens"], (m, r)
        line = ask(s, logprobs=True, top_logprobs=2, stream=False).json()
        assert len(line["logprobs"]) == line["eval_count"] and len(line["logprobs"][0]["top_logprobs"]) == 2, line
        assert sum(len(e.get("logprobs", [])) for e in lines(ask(s, logprobs=True))) == line["eval_count"]


def test_every_field_has_its_bounds():
    bad = [({"messages": 1}, "messages must"), ({"messages": [1]}, "messages[0] must"), ({"messages": [{"content": "x"}]}, "messages[0].role is required"), ({"messages": [{"role": "x", "content": "y"}]}, "messages[0].role must"),
           ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content must"), ({"messages": [*HI, {"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[1].images: images are not supported"),
           ({"tools": 1}, "tools must"), ({"tools": [{"type": "function"}]}, "tools[0].function is required"), ({"options": []}, "options must"), ({"options": {"temperature": 3}}, "options.temperature must"),
           ({"options": {"top_k": "x"}}, "options.top_k must"), ({"options": {"top_p": 2}}, "options.top_p must"), ({"options": {"min_p": 2}}, "options.min_p must"), ({"options": {"num_predict": 1.5}}, "options.num_predict must"),
           ({"options": {"num_predict": 2 ** 31}}, "options.num_predict must"), ({"options": {"stop": [""]}}, "options.stop[0] must"), ({"options": {"repeat_penalty": 0}}, "options.repeat_penalty must"),
           ({"options": {"presence_penalty": 3}}, "options.presence_penalty must"), ({"options": {"frequency_penalty": 3}}, "options.frequency_penalty must"), ({"options": {"seed": "x"}}, "options.seed must"),
           ({"format": "xml"}, "format must"), ({"format": 1}, "format must"), ({"format": {"type": "nonsense"}}, "format"), ({"think": 1}, "think must"), ({"stream": "no"}, "stream must"), ({"model": 1}, "model must"), ({"top_logprobs": 21, "logprobs": True}, "top_logprobs must")]
    generate = [({"prompt": 1}, "prompt must"), ({"system": 1}, "system must"), ({"raw": True}, "raw: "), ({"template": "x"}, "template: "), ({"suffix": "x"}, "suffix: "), ({"images": ["aGk="]}, "images: "), ({"raw": "x"}, "raw: ")]
    with Server("--mock-rate", "0", *HERMES) as s:
        for path, cases in ((CHAT, bad), (GENERATE, generate)):
            for fields, begins in cases:
                r = ask(s, path, **fields)
                assert r.status == 400 and set(r.json()) == {"error"} and r.json()["error"].startswith(begins), (fields, r.body)
        for fields in ({"raw": False, "template": "", "suffix": "", "images": [], "context": [1, 2], "system": ""}, {"options": None}, {"think": "high"}, {"options": {"num_predict": 0}}):
            assert lines(ask(s, GENERATE, **fields))[-1]["done"], fields
        r = ask(s, model="another")
        assert r.status == 404 and "another" in r.json()["error"], r.body
        r = post(s.port, CHAT, b"{")
        assert r.status == 400 and "JSON" in r.json()["error"], r.body


def test_clients_find_the_model():
    with Server("--mock-rate", "0", *HERMES, "--served-model-name", "one", "--served-model-name", "two") as s:
        for method in ("HEAD", "GET"):
            assert call(s.port, method, "/").status == 200
        tags = get(s.port, "/api/tags").json()["models"]
        assert [m["name"] for m in tags] == ["one", "two"] == [m["model"] for m in tags] and all(len(m["digest"]) == 64 and m["details"] and m["modified_at"] for m in tags), tags
        assert [m["name"] for m in get(s.port, "/api/ps").json()["models"]] == ["one", "two"]
        assert re.fullmatch(r"\d+\.\d+\.\d+", get(s.port, "/api/version").json()["version"])
        for body in ({"model": "one"}, {"model": "two:latest"}, {"name": "one"}):
            shown = post(s.port, "/api/show", body).json()
            info = shown["model_info"]
            assert info[info["general.architecture"] + ".context_length"] == 4096 and {"completion", "tools", "thinking"} == set(shown["capabilities"]), shown
        assert post(s.port, "/api/show", {"model": "three"}).status == 404
        for path in (CHAT, GENERATE):
            for name in ("one", "two:latest"):
                r = post(s.port, path, {"model": name})
                assert r.status == 200 and r.json()["done"] and r.json()["done_reason"] == "load", r.body
                assert ask(s, path, model=name, stream=False).json()["model"] == name.split(":")[0]
            assert post(s.port, path, {"model": "three"}).status == 404
        assert "Ollama" in post(s.port, "/api/pull", {"model": "x"}).json()["error"]


def test_a_body_may_have_any_type_unless_a_web_page_sends_it():
    with Server("--mock-rate", "0") as s:
        body = {"model": "mock", "prompt": "x", "stream": False}
        form = "application/x-www-form-urlencoded"  # as curl -d sends it
        for headers, status in (({"Content-Type": form}, 200), ({"Content-Type": None}, 200), ({"Content-Type": form, "Origin": "http://evil.example"}, 415)):
            r = post(s.port, GENERATE, body, headers)
            assert r.status == status, (headers, r.status, r.body)
        assert post(s.port, "/v1/completions", {"prompt": "x"}, {"Content-Type": form}).status == 415


def test_texts_are_embedded():
    with Server("--mock-rate", "0") as s:
        for given in ("a text", ["a text", "another"]):
            ours = post(s.port, "/api/embed", {"model": "mock", "input": given, "truncate": True, "keep_alive": "5m"})
            theirs = post(s.port, "/v1/embeddings", {"input": given}).json()
            assert ours.status == 200, ours.body
            assert ours.json()["embeddings"] == [d["embedding"] for d in theirs["data"]] and ours.json()["prompt_eval_count"] == theirs["usage"]["prompt_tokens"], ours.body
        old = post(s.port, "/api/embeddings", {"model": "mock", "prompt": "a"}).json()
        assert old == {"embedding": post(s.port, "/api/embed", {"input": "a"}).json()["embeddings"][0]}, old
        r = post(s.port, "/api/embeddings", {"model": "mock", "prompt": ["a"]})
        assert r.status == 400 and r.json()["error"].startswith("prompt must be a string"), r.body
        r = post(s.port, "/api/embed", {"model": "mock"})
        assert r.status == 400 and r.json()["error"].startswith("input is required"), r.body


def test_an_error_in_a_stream_is_a_line():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    with Server("--mock-rate", "0", "--model", model.make(), *scripts('{"a": x}')) as s:
        stream = lines(ask(s, format=schema))
        assert set(stream[-1]) == {"error"} and not any(line.get("done") for line in stream) and len(stream) > 1, stream


if __name__ == "__main__":
    run_tests(globals())
