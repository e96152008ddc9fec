"""Answers with a form: schemas and grammars, calls of tools, reasoning. The mock engine says what a script says, and fails where the request's grammar does not take it."""
import json
import time
from concurrent.futures import ThreadPoolExecutor

import model
from lib import Server, chat, events, metrics, post, run_tests

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SHORTEST, SAY = 669, 500000
THINKING = model.TEMPLATE.replace("{%- if m.content is string", "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{%- if m.content is string").replace(
    "assistant\\n' }}{% endif %}", """assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- if reasoning_effort == 'high' %}{{ '<think>\\n' }}{% endif %}{% endif %}""")
HERMES = ("--tool-format", "hermes", "--model", model.make(THINKING))
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"], "additionalProperties": False}}}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}
PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'


def scripts(*texts):
    return [x for t in texts for x in ("--mock-script", t)]


def ask(s, path=CHAT, **fields):
    body = chat("hi") if path == CHAT else {"prompt": "hi"}
    return post(s.port, path, {"max_tokens": 400, **body, **fields})


def answer(s, path=CHAT, **fields):
    r = ask(s, path, **fields)
    assert r.status == 200, (str(fields)[:200], r.body)
    return r.json()["choices"][0]


def text_of(s, path, **fields):
    c = answer(s, path, **fields)
    return c["text"] if path == COMPLETIONS else c["message"]["content"]


def joined(s, **fields):
    """A stream's deltas put together as a client does: the message it makes, and its finish_reason."""
    message, calls, finish, kinds = {"role": "assistant", "content": ""}, [], None, []
    r = ask(s, stream=True, **fields)
    stream = events(r.body)
    assert stream[-1] == "[DONE]", stream[-1]
    for e in stream[:-1]:
        for c in e["choices"]:
            d = c["delta"]
            for key in ("content", "reasoning_content", "reasoning"):
                if d.get(key):
                    message[key] = message.get(key, "") + d[key]
                    kinds.append(key)
            for t in d.get("tool_calls", []):
                if t["index"] == len(calls):
                    assert set(t) == {"index", "id", "type", "function"} and t["function"]["arguments"] == "", t
                    calls.append({"id": t["id"], "type": t["type"], "function": dict(t["function"])})
                else:
                    assert t["index"] == len(calls) - 1 and set(t) == {"index", "function"} and set(t["function"]) == {"arguments"}, t
                    calls[-1]["function"]["arguments"] += t["function"]["arguments"]
                kinds.append("call")
            finish = c["finish_reason"] or finish
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    return message, finish, kinds


def same_in_a_stream(s, **fields):
    """The whole answer, after it was seen to be the stream's; ids may differ."""
    c = answer(s, **fields)
    message, finish, _ = joined(s, **fields)
    whole = {k: v for k, v in c["message"].items() if k != "refusal"}
    for m in (message, whole):
        for call in m.get("tool_calls", []):
            assert call.pop("id")
    assert message == whole, (message, whole)
    assert finish == c["finish_reason"], (finish, c)
    return c


def test_an_answer_is_what_each_field_demands():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"], "additionalProperties": False}
    gbnf = 'root ::= "yes" | "no!"'
    objects = [{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}}, {"json_schema": schema},
               {"response_format": {"type": "json_object", "schema": schema}}, {"response_format": {"type": "json_schema", "schema": schema}},
               {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}, {"structured_outputs": {"json": json.dumps(schema)}},
               {"guided_json": schema}, {"guided_json": json.dumps(schema), "guided_decoding_backend": "xgrammar"}]
    texts = [({"guided_regex": "[a-c]{2}"}, "aa ab ac ba bb bc ca cb cc"), ({"regex": "x+y"}, "xy"), ({"structured_outputs": {"regex": "a|b"}}, "a b"), ({"guided_choice": ["red", "blue"]}, "red blue"),
             ({"structured_outputs": {"choice": ["left", "right"]}}, "left right"), ({"grammar": gbnf}, "yes no!"), ({"ebnf": gbnf}, "yes no!"),
             ({"guided_grammar": gbnf}, "yes no!"), ({"structured_outputs": {"grammar": 'start: "up" | "down"'}}, "up down"),
             ({"structured_outputs": {"structural_tag": {"type": "structural_tag", "format": {"type": "const_string", "value": "hey"}}}}, "hey"),
             ({"response_format": {"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "7"}, "end": "</a>"}}}, "<a>7</a>")]
    with Server("--mock-rate", "0") as s:
        for path in (CHAT, COMPLETIONS):
            for demand in objects:
                value = json.loads(text_of(s, path, seed=SHORTEST, **demand))
                assert set(value) == {"a"} and value["a"] >= 3, (demand, value)
            for demand, allowed in texts:
                text = text_of(s, path, seed=SHORTEST, **demand)
                assert text in allowed.split(), (demand, text)
            assert json.loads(text_of(s, path, seed=SHORTEST, response_format={"type": "json_object"})) == {}
            assert json.loads(text_of(s, path, seed=SHORTEST, structured_outputs={"json_object": True})) == {}
            r = ask(s, path, guided_regex="[a-c]{3}")  # the mock says what it always says
            assert r.status == 500 and "grammar does not take" in r.error()["message"], r.body


def test_each_choice_and_prompt_has_its_own_state():
    with Server("--mock-rate", "0") as s:
        r = ask(s, n=4, seed=SHORTEST, guided_choice=["only"]).json()
        assert [c["message"]["content"] for c in r["choices"]] == ["only"] * 4
        r = ask(s, COMPLETIONS, prompt=["a", "b", "c"], n=2, seed=SHORTEST, guided_choice=["only"]).json()
        assert [c["text"] for c in r["choices"]] == ["only"] * 6


def test_what_cannot_be_enforced_is_refused_with_its_path():
    bad = {"type": "object", "properties": {"a": {"type": "array", "unevaluatedItems": {"type": "string"}, "items": {"$ref": "http://example.org/x"}}}}
    with Server("--mock-rate", "0") as s:
        for fields, at in (({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": bad}}}, "response_format.json_schema.schema.properties.a"),
                           ({"guided_json": bad}, "guided_json.properties.a"), ({"structured_outputs": {"json": json.dumps(bad)}}, "structured_outputs.json.properties.a"),
                           ({"tools": [{"type": "custom"}, TIME, {"type": "function", "function": {"name": "f", "parameters": bad}}], "tool_choice": "required"}, "tools[2].function.parameters.properties.a"),
                           ({"guided_regex": "a("}, "guided_regex"), ({"grammar": "root ::= ("}, "grammar"), ({"guided_grammar": "start: ("}, "guided_grammar"),
                           ({"response_format": {"type": "structural_tag", "format": {"type": "sequence", "elements": [{"type": "any_text"}, {"type": "nonsense"}]}}},
                            "response_format.format.elements[1].type")):
            r = ask(s, **fields)
            assert r.status == 400, (fields, r.body)
            assert r.error()["param"].startswith(at) and r.error()["type"] == "invalid_request_error", (at, r.body)


def test_bombs_end_soon_and_hurt_nobody():
    deep = {"type": "string"}
    for _ in range(20):
        deep = {"anyOf": [{"type": "array", "items": deep}, {"type": "object", "properties": {"a": deep}}]} if len(json.dumps(deep)) < 20000 else {"items": deep}
    bombs = [{"guided_json": {"type": "string", "maxLength": 100000}}, {"guided_json": {"enum": ["value %d" % i for i in range(5000)]}},
             {"guided_json": {"type": "object", "properties": {"p%d" % i: {"type": "integer"} for i in range(40)}}}, {"guided_regex": "(a|b)*c{1000}"},
             {"guided_regex": "(((a{1,100}){1,100}){1,100}){1,100}"}, {"guided_regex": "(.*a.{30}){20}"}, {"guided_json": deep},
             {"grammar": "root ::= " + " | ".join("r%d" % i for i in range(2000)) + "\n" + "\n".join("r%d ::= \"a\" r%d?" % (i, (i + 1) % 2000) for i in range(2000))},
             {"guided_json": {"type": "array", "items": {"type": "array", "items": {"type": "string", "pattern": "^(a+)+$"}, "maxItems": 1000}, "maxItems": 1000}},
             {"tools": [{"type": "function", "function": {"name": "f%d" % i, "parameters": {"type": "object", "properties": {"p%d" % k: {"type": "string"} for k in range(20)}}}}
                        for i in range(128)], "tool_choice": "required"}]
    with Server("--mock-rate", "0", "--mock-ctx", "100000", *HERMES) as s, ThreadPoolExecutor(2) as pool:
        for bomb in bombs:
            begun = time.monotonic()
            at_work = pool.submit(ask, s, seed=SHORTEST, **bomb)
            r = ask(s, max_tokens=3)
            between = time.monotonic() - begun
            assert r.status == 200 and between < 20, (str(bomb)[:80], between)
            r = at_work.result()
            took = time.monotonic() - begun
            assert r.status in (200, 400), (str(bomb)[:80], r.body)
            assert took < 60, (str(bomb)[:80], took)
            print("%6.3f s  %d  %s" % (took, r.status, str(bomb)[:70]))


def test_grammars_are_kept_within_their_bound():
    with Server("--mock-rate", "0", "--grammar-cache", "64MiB") as s:
        assert metrics(s.port)["quire_grammars_bytes"] == 0
        for i in range(30):
            assert text_of(s, CHAT, seed=SHORTEST, guided_choice=["x%d" % i]) == "x%d" % i
        held = metrics(s.port)["quire_grammars_bytes"]
        assert 0 < held <= 64 << 20, held
        for _ in range(3):
            text_of(s, CHAT, seed=SHORTEST, guided_choice=["x29"])
        assert metrics(s.port)["quire_grammars_bytes"] == held, "the same demand is the same grammar"
    with Server("--mock-rate", "0", "--grammar-cache", "1MiB") as s:
        error = ask(s, guided_choice=["a"]).error()
        assert error["code"] == "too_large" and "--grammar-cache" in error["message"], error
    with Server("--mock-rate", "20", "--grammar-cache", "32MiB") as s, ThreadPoolExecutor(8) as pool:
        slow = "a" * 40
        answers = list(pool.map(lambda i: ask(s, seed=SHORTEST, guided_choice=[slow + str(i)]), range(8)))
        codes = sorted(r.status for r in answers)
        assert codes[0] == 200 and codes[-1] == 429, codes
        full = [r for r in answers if r.status == 429][0]
        assert full.headers["retry-after"] and "--grammar-cache" in full.error()["message"], full.body


def test_calls_are_told_apart_from_text():
    with Server("--mock-rate", "0", *HERMES, *scripts("just text", "I look.\n" + PARIS, PARIS + "\n" + NOW, PARIS[:60])) as s:
        c = same_in_a_stream(s, seed=SAY, tools=[WEATHER, TIME])
        assert c["message"]["content"] == "just text" and "tool_calls" not in c["message"] and c["finish_reason"] == "stop"
        c = same_in_a_stream(s, seed=SAY + 1, tools=[WEATHER, TIME])
        assert c["message"]["content"].strip() == "I look." and c["finish_reason"] == "tool_calls", c
        call, = c["message"]["tool_calls"]
        assert call["type"] == "function" and call["function"]["name"] == "get_weather" and json.loads(call["function"]["arguments"]) == {"city": "Paris", "days": 2}
        c = same_in_a_stream(s, seed=SAY + 2, tools=[WEATHER, TIME])
        assert c["message"]["content"] is None and [x["function"]["name"] for x in c["message"]["tool_calls"]] == ["get_weather", "get_time"], c
        assert c["message"]["tool_calls"][1]["function"]["arguments"] == "{}", c
        ids = [x["id"] for x in answer(s, seed=SAY + 2, tools=[WEATHER, TIME])["message"]["tool_calls"]]
        assert len(set(ids)) == 2 and all(i.startswith("call_") and len(i) == 29 for i in ids), ids
        c = same_in_a_stream(s, seed=SAY + 3, tools=[WEATHER], max_tokens=40)  # cut by max_tokens
        assert c["finish_reason"] == "length" and "</tool_call>" not in str(c), c
        c = same_in_a_stream(s, seed=SAY + 1, tools=[WEATHER], tool_choice="none")
        assert "tool_calls" not in c["message"] and '"get_weather"' in c["message"]["content"] and c["finish_reason"] == "stop", c
        c = same_in_a_stream(s, seed=SAY + 1)
        assert "tool_calls" not in c["message"], "without tools a call is text"


def test_ids_of_calls_are_those_that_the_familys_template_takes():
    call = '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}'
    with Server("--mock-rate", "0", "--tool-format", "mistral-v13", *scripts(call)) as s:
        ids = [answer(s, seed=SAY, tools=[WEATHER])["message"]["tool_calls"][0]["id"] for _ in range(2)]
        assert all(len(i) == 9 and i.isascii() and i.isalnum() for i in ids) and ids[0] != ids[1], ids


def test_a_choice_of_tools_forces_calls():
    named = {"type": "function", "function": {"name": "get_time"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_weather"}}]}}
    with Server("--mock-rate", "0", *HERMES, *scripts("text", PARIS, NOW, PARIS + "\n" + NOW, PARIS.replace('"city"', '"town"'))) as s:
        tools = {"tools": [WEATHER, TIME]}
        for choice, seed, name in (("required", SAY + 1, "get_weather"), ("required", SAY + 2, "get_time"), (named, SAY + 2, "get_time"), (allowed, SAY + 1, "get_weather"),
                                   (named, SHORTEST, "get_time"), (allowed, SHORTEST, "get_weather"), ("required", SHORTEST, None)):
            c = same_in_a_stream(s, seed=seed, tool_choice=choice, **tools)
            assert c["finish_reason"] == "tool_calls" and c["message"]["content"] is None, (choice, seed, c)
            assert c["message"]["tool_calls"][0]["function"]["name"] == (name or c["message"]["tool_calls"][0]["function"]["name"]), (choice, c)
            json.loads(c["message"]["tool_calls"][0]["function"]["arguments"])
        assert len(same_in_a_stream(s, seed=SAY + 3, tool_choice="required", **tools)["message"]["tool_calls"]) == 2
        for choice, seed, more in (("required", SAY, {}), (named, SAY + 1, {}), (allowed, SAY + 2, {}), ("required", SAY + 3, {"parallel_tool_calls": False}), ("auto", SAY + 4, {})):
            r = ask(s, seed=seed, tool_choice=choice, **tools, **more)
            assert r.status == 500 and "grammar does not take" in r.error()["message"], (choice, seed, r.body)


def test_tools_beside_a_schema_are_a_call_or_the_content():
    schema = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}}}}
    with Server("--mock-rate", "0", *HERMES, *scripts('{"ok": true}', PARIS, "free text")) as s:
        c = same_in_a_stream(s, seed=SAY, tools=[WEATHER], **schema)
        assert c["message"]["content"] == '{"ok": true}' and c["finish_reason"] == "stop", c
        c = same_in_a_stream(s, seed=SAY + 1, tools=[WEATHER], **schema)
        assert c["message"]["tool_calls"][0]["function"]["name"] == "get_weather", c
        assert ask(s, seed=SAY + 2, tools=[WEATHER], **schema).status == 500, "neither a call nor content in the schema"


def test_markers_of_structural_tags_may_be_special_tokens():
    tag = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [
        {"type": "tag", "begin": "<tool_call>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</tool_call>"}]}
    demand = {"response_format": {"type": "structural_tag", "format": tag}}
    with Server("--mock-rate", "0", *scripts("It is <tool_call>42</tool_call>.", "It is <tool_call>x</tool_call>.")) as s:
        assert text_of(s, COMPLETIONS, seed=SAY, skip_special_tokens=False, **demand) == "It is <tool_call>42</tool_call>."
        assert ask(s, COMPLETIONS, seed=SAY + 1, **demand).status == 500


def test_reasoning_is_told_apart():
    said = "<think>\nLet me see.\n</think>\n\nIt is 4."
    with Server("--mock-rate", "0", *HERMES, *scripts(said, said[8:], "<think>\nhm\n</think>\n\n" + PARIS, '<think>\nhm\n</think>\n\n{"a": 1}', "<|im_start|>It <|im_end|>is.")) as s:
        c = same_in_a_stream(s, seed=SAY)
        assert c["message"]["content"] == "It is 4." and c["message"]["reasoning_content"].strip() == "Let me see." == c["message"]["reasoning"].strip(), c
        c = same_in_a_stream(s, seed=SAY + 1, reasoning_effort="high")  # the prompt has begun it
        assert c["message"]["content"] == "It is 4." and c["message"]["reasoning"].strip() == "Let me see.", c
        c = same_in_a_stream(s, seed=SAY, include_reasoning=False)
        assert c["message"]["content"] == "It is 4." and "reasoning" not in c["message"] and "reasoning_content" not in c["message"], c
        for fields in ({"separate_reasoning": False}, {"reasoning_format": "none"}):
            c = same_in_a_stream(s, seed=SAY, **fields)
            assert c["message"]["content"] == said and "reasoning" not in c["message"], c
        c = same_in_a_stream(s, seed=SAY + 2, tools=[WEATHER], tool_choice="required")
        assert c["message"]["reasoning"].strip() == "hm" and len(c["message"]["tool_calls"]) == 1, c
        c = same_in_a_stream(s, seed=SAY + 3, guided_regex='[{]"a": [0-9][}]')
        assert c["message"]["content"] == '{"a": 1}', "the grammar begins behind the end of thinking"
        c = same_in_a_stream(s, seed=SAY + 4)
        assert c["message"]["content"] == "It is.", "special tokens leave no text"
        assert same_in_a_stream(s, seed=SAY + 4, skip_special_tokens=False)["message"]["content"] == "<|im_start|>It <|im_end|>is."
        r = ask(s, seed=SAY + 3, guided_regex='[{]"a": [0-9][}]', enable_thinking=False)
        assert r.status == 500, "a prompt that has ended thinking leaves none"
        assert text_of(s, CHAT, seed=SHORTEST, guided_choice=["yes"], enable_thinking=False) == "yes"
        usage = ask(s, seed=SAY).json()["usage"]
        n = usage["completion_tokens_details"]["reasoning_tokens"]
        assert 5 < n < usage["completion_tokens"], usage


def test_messages_bring_reasoning_and_calls_to_the_template():
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    with Server("--mock-rate", "0", *HERMES) as s:
        def prompt(*messages, **fields):
            ids = post(s.port, "/tokenize", {"messages": [{"role": "user", "content": "x"}, *messages], **fields}).json()["tokens"]
            return post(s.port, "/detokenize", {"tokens": ids}).json()["prompt"]
        for key in ("reasoning", "reasoning_content"):
            assert "<think>why</think>because" in prompt({"role": "assistant", "content": "because", key: "why", "unknown": [1]}), key
        text = prompt({"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "2"})
        assert 'f({"a": 1})' in text and "tool\n2" in text, text
        assert prompt(reasoning_effort="high").endswith("<think>\n") and prompt(enable_thinking=False).endswith("</think>\n\n")
        assert prompt(reasoning_effort="none").endswith("</think>\n\n"), "none is no thinking"
        assert not prompt(enable_thinking=False, chat_template_kwargs={"enable_thinking": True}).endswith("</think>\n\n"), "chat_template_kwargs win"


PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
STRICT = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system message') }}{% endif %}" + PLAIN.split("%}", 1)[1]


def test_a_model_without_a_format_is_told_of_tools_and_writes_json():
    for template, role in ((PLAIN, "system"), (STRICT, "user")):
        with Server("--model", model.make(template), "--mock-rate", "0", *scripts('{"name": "get_weather", "arguments": {"city": "Rome"}}', "Hello.")) as s:
            for messages in ([{"role": "user", "content": "x"}], [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "x"}]):
                r = post(s.port, "/tokenize", {"messages": messages, "tools": [WEATHER]})
                if role == "user" and len(messages) == 2:
                    assert r.status == 400 and "no system message" in r.error()["message"], r.body
                    continue
                text = post(s.port, "/detokenize", {"tokens": r.json()["tokens"]}).json()["prompt"]
                first = text.split("<|im_end|>")[0]
                assert first.startswith("<|im_start|>%s\nYou can call functions" % role) and '"get_weather"' in first and "assistant" in text, text
                assert text.count("system") == (role == "system") and ("Be kind." in first) == (len(messages) == 2), text
            call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
            turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call, call]}, {"role": "tool", "tool_call_id": "1", "content": "Sun."}]
            text = post(s.port, "/detokenize", {"tokens": post(s.port, "/tokenize", {"messages": turns}).json()["tokens"]}).json()["prompt"]
            parts = [{**m, "content": m["content"] and [{"type": "text", "text": m["content"]}]} for m in turns]
            same = [post(s.port, "/tokenize", {"messages": m, "tools": [WEATHER]}).json()["tokens"] for m in (turns, parts)]
            assert same[0] == same[1], "a text and its only part are the same"
            line = '{"name": "get_weather", "arguments": {"city":"Rome"}}'
            assert "assistant\n%s\n%s<|im_end|>" % (line, line) in text and "user\nResult of get_weather: Sun.<|im_end|>" in text, text
            for choice in ("auto", "required"):
                c = same_in_a_stream(s, seed=SAY, tools=[WEATHER], tool_choice=choice)
                assert json.loads(c["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}, c
            assert same_in_a_stream(s, seed=SAY + 1, tools=[WEATHER])["message"]["content"] == "Hello."


def test_log_probabilities_are_of_all_tokens():
    with Server("--mock-rate", "0", *HERMES, *scripts("<think>a</think>b" + PARIS)) as s:
        fields = {"seed": SAY, "tools": [WEATHER], "logprobs": True, "return_token_ids": True}
        c = answer(s, **fields)
        stream = events(ask(s, stream=True, **fields).body)
        parts = [t for e in stream[:-1] for x in e["choices"] if x["logprobs"] for t in x["logprobs"]["content"]]
        ids = [i for e in stream[:-1] for x in e["choices"] for i in x.get("token_ids", [])]
        assert parts == c["logprobs"]["content"] and ids == c["token_ids"] and len(ids) == len(parts), (len(parts), len(ids))
        assert "".join(t["token"] for t in parts) == "<think>a</think>b" + PARIS


def test_a_tool_format_that_is_unknown_is_refused_at_the_start():
    try:
        Server("--tool-format", "nonsense")
    except SystemExit as e:
        assert "nonsense" in str(e) and "hermes" in str(e), e
    else:
        raise AssertionError("it started")


if __name__ == "__main__":
    run_tests(globals())
