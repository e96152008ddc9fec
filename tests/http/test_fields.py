"""Every request field at its bounds and one beyond, with wrong types, and broken JSON: a clear 4xx that names field, bound and value."""
import json
import subprocess
import sys

from lib import Server, call, chat, get, post, run_tests

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CTX = 512


def fields():
    out = subprocess.run([sys.argv[1], "--fields"], capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def base(path):
    return chat("hi", max_tokens=1) if path == CHAT else {"prompt": "hi", "max_tokens": 1}


def paths(field):
    return [p for p, key in ((CHAT, "chat"), (COMPLETIONS, "completions")) if field[key]]


def send(s, path, **extra):
    body = base(path)
    body.update(extra)
    return post(s.port, path, body)


def refused(r, param, *words):
    assert r.status == 400, (param, r.status, r.body)
    error = r.error()
    assert error["type"] == "invalid_request_error", error
    assert error["param"] is not None and error["param"].startswith(param), (param, error)
    for word in words:
        assert str(word) in error["message"], (word, error)
    return error


def companions(name, value):
    """What a field needs beside itself to be accepted."""
    if name == "min_tokens" and value > 0:
        return {"max_tokens": CTX - 200 if value < CTX - 200 else value}
    if name == "top_logprobs":
        return {"logprobs": True}
    return {}


def test_integers_hold_their_bounds_and_say_so():
    with Server("--mock-rate", "0", "--mock-ctx", str(CTX)) as s:
        n = 0
        for f in fields():
            if f["type"] != "int":
                continue
            low, high = int(f["min"]), CTX if f["max_is_ctx"] else int(f["max"])
            for path in paths(f):
                for value in (low - 1, high + 1, -2 ** 63, 2 ** 63, 10 ** 30):
                    refused(send(s, path, **{f["name"]: value}), f["name"], low, high, str(value)[:20])
                r = send(s, path, **{f["name"]: low, **companions(f["name"], low)})
                assert r.status == 200, (f["name"], low, r.body)
                r = send(s, path, **{f["name"]: high, **companions(f["name"], high)})
                if f["max_is_ctx"]:  # the prompt takes room too
                    error = r.error()
                    assert r.status == 400 and error["code"] == "context_length_exceeded" and str(CTX) in error["message"], error
                else:
                    assert r.status == 200, (f["name"], high, r.body)
                assert send(s, path, **{f["name"]: None}).status == 200, "null means absent"
                n += 1
        assert n > 8, n


def test_floats_hold_their_bounds_and_say_so():
    with Server("--mock-rate", "0") as s:
        n = 0
        for f in fields():
            if f["type"] != "float":
                continue
            for path in paths(f):
                for value in (f["min"] - 1, f["min"] - 1e-6, f["max"] + 1e-6, f["max"] + 1, 1e300, -1e300):
                    refused(send(s, path, **{f["name"]: value}), f["name"], "%g" % f["min"], "%g" % f["max"])
                for value in (1e-38, 1e-45, 1e-46, 0, -0.0):  # as f32: subnormal, the smallest, 0
                    r = send(s, path, **{f["name"]: value})
                    assert r.status == (400 if f["min"] > 0 else 200), (f["name"], value, r.body)
                for value in (f["min"], f["max"], (f["min"] + f["max"]) / 2):
                    r = send(s, path, **{f["name"]: value})
                    assert r.status == 200, (f["name"], value, r.body)
                n += 1
        assert n > 8, n


def test_wrong_types_are_named():
    wrong = {"int": ["1", 1.5, True, [1], {}, "x" * 300], "float": ["1", False, [], {"a": 1}], "bool": [0, 1, "true", [], {}]}
    with Server("--mock-rate", "0") as s:
        for f in fields():
            for value in wrong.get(f["type"], []):
                for path in paths(f):
                    error = refused(send(s, path, **{f["name"]: value}), f["name"], "found")
                    assert len(error["message"]) < 300, error


def test_structured_fields_are_checked():
    long = "x" * 257
    table = [
        (CHAT, "model", 5, "a string"), (CHAT, "messages", {}, "array"), (CHAT, "messages", [], "at least one"),
        (CHAT, "messages", "hi", "array"), (CHAT, "messages", None, "required"), (COMPLETIONS, "prompt", None, "required"),
        (COMPLETIONS, "prompt", 5, "string"), (COMPLETIONS, "prompt", [], "empty"), (COMPLETIONS, "prompt", [True], "token id"),
        (COMPLETIONS, "prompt", [1, "a"], "token id"), (COMPLETIONS, "prompt", ["a", 1], "string"), (COMPLETIONS, "prompt", [[1], "a"], "array"),
        (COMPLETIONS, "prompt", [-1], "between 0 and"), (COMPLETIONS, "prompt", [100000], "between 0 and"), (COMPLETIONS, "prompt", [1.5], "token id"),
        (COMPLETIONS, "prompt", [[5, 999999999999]], "between 0 and"), (COMPLETIONS, "prompt", [[]], "empty"), (COMPLETIONS, "prompt", ["a"] * 129, "128"),
        (CHAT, "stop", 5, "string"), (CHAT, "stop", [5], "string"), (CHAT, "stop", "", "between 1 and 256"), (CHAT, "stop", long, "257"),
        (CHAT, "stop", ["a"] * 17, "16"), (CHAT, "stop", [""], "between"), (CHAT, "stop_token_ids", 5, "array"), (CHAT, "stop_token_ids", [0] * 65, "64"),
        (CHAT, "stop_token_ids", [-1], "between"), (CHAT, "stop_token_ids", ["a"], "token id"), (CHAT, "logit_bias", [], "object"),
        (CHAT, "logit_bias", {"a": 1}, "token ids"), (CHAT, "logit_bias", {"-1": 1}, "token ids"), (CHAT, "logit_bias", {"99999": 1}, "99999"),
        (CHAT, "logit_bias", {"1": 101}, "100"), (CHAT, "logit_bias", {"1": -100.5}, "-100.5"), (CHAT, "logit_bias", {"1": "x"}, "number"),
        (CHAT, "logit_bias", {str(i): 1 for i in range(1025)}, "1024"), (CHAT, "seed", 1.5, "integer"), (CHAT, "seed", "1", "integer"),
        (CHAT, "seed", 2 ** 63, "9223372036854775807"), (CHAT, "seed", -2 ** 63 - 1, "-9223372036854775808"), (CHAT, "top_k", -2, "-1"),
        (CHAT, "top_k", 2 ** 31, "2147483647"), (CHAT, "top_k", 0.5, "integer"), (CHAT, "logprobs", 1, "top_logprobs"), (CHAT, "logprobs", "x", "true or false"),
        (CHAT, "top_logprobs", 3, "logprobs: true"), (COMPLETIONS, "logprobs", -1, "0"), (COMPLETIONS, "logprobs", 21, "20"), (COMPLETIONS, "logprobs", True, "integer"),
        (COMPLETIONS, "logprobs", "3", "integer"), (CHAT, "stream_options", {"include_usage": True}, "stream: true"), (CHAT, "stream_options", [], "object"),
        (CHAT, "stream_options", {"include_usage": 1}, "true or false"), (CHAT, "tools", {}, "array"), (CHAT, "tools", [1], "object"), (CHAT, "tools", [{}], "type"),
        (CHAT, "tools", [{"type": "function"}], "name"), (CHAT, "tool_choice", "required", "needs tools"), (CHAT, "tool_choice", {"type": "function", "function": {"name": "f"}}, "names the tool 'f'"),
        (CHAT, "response_format", "text", "object"), (CHAT, "response_format", {}, "type"),
        (CHAT, "modalities", ["text", "audio"], "text"),
        (CHAT, "audio", {"voice": "x"}, "audio"), (CHAT, "chat_template", "{{ 1 }}", "templates"), (CHAT, "chat_template_kwargs", [], "object"),
        (CHAT, "chat_template_kwargs", {"messages": 1}, "messages"), (CHAT, "chat_template_kwargs", {"x": []}, "number"), (CHAT, "documents", {}, "array"),
        (CHAT, "cache_salt", "", "between 1 and 128"), (CHAT, "cache_salt", "x" * 129, "129"), (CHAT, "cache_salt", 5, "string"),
        (COMPLETIONS, "best_of", 2, "found 2; use n"), (COMPLETIONS, "best_of", 0, "at least n (1)"), (COMPLETIONS, "best_of", "1", "integer"), (COMPLETIONS, "suffix", "end", "suffix"), (CHAT, "functions", [{}], "tools"),
        (CHAT, "bad_words", "x", "an array of strings"), (COMPLETIONS, "bad_words", [5], "string"),
        (CHAT, "bad_words", [""], "between 1 and 256"), (CHAT, "bad_words", ["ok", " \n"], "bad_words[1]: it has no token"), (CHAT, "bad_words", ["x"] * 1025, "1024"),
        (CHAT, "allowed_token_ids", 5, "array"), (COMPLETIONS, "allowed_token_ids", [], "between 1 and"), (CHAT, "allowed_token_ids", [-1], "between 0 and"),
        (CHAT, "allowed_token_ids", [100000], "between 0 and"), (CHAT, "allowed_token_ids", ["a"], "token id"), (CHAT, "truncate_prompt_tokens", 0, "-1 or at least 1, found 0"),
        (COMPLETIONS, "truncate_prompt_tokens", -2, "-1"), (COMPLETIONS, "truncate_prompt_tokens", "5", "integer"), (CHAT, "truncate_prompt_tokens", 10 ** 6, "between -1 and"), (COMPLETIONS, "prompt_embeds", "AAAA", "tensors"),
        (CHAT, "use_beam_search", True, "beam"), (CHAT, "echo", True, "completions"),
    ]
    with Server("--mock-rate", "0") as s:
        for path, name, value, word in table:
            refused(send(s, path, **{name: value}), name, word)
        for extra in ({"min_tokens": 5, "max_tokens": 4}, ):
            refused(send(s, CHAT, **extra), "min_tokens", 4, 5)
        refused(send(s, CHAT, prompt_logprobs=1, stream=True), "prompt_logprobs", "stream")
        refused(send(s, CHAT, continue_final_message=True, add_generation_prompt=True), "continue_final_message")
        refused(send(s, COMPLETIONS, prompt=["a"] * 17, n=8), "prompt", 128)
        refused(send(s, COMPLETIONS, n=2, best_of=1), "best_of", "at least n (2), found 1")


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_demands_are_checked():
    schema = {"type": "object"}
    table = [
        ("response_format", {"type": "json"}, ".type", 'found "json"'), ("response_format", {"type": 5}, ".type", "string"),
        ("response_format", {"type": "json_schema"}, ".json_schema", "required"), ("response_format", {"type": "json_schema", "json_schema": 5}, ".json_schema", "object"),
        ("response_format", {"type": "json_schema", "json_schema": {}}, ".json_schema.schema", "required"),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": 5}}, ".json_schema.schema", "JSON Schema"),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": schema, "strict": 1}}, ".json_schema.strict", "true or false"),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": schema, "name": 1}}, ".json_schema.name", "string"),
        ("response_format", {"type": "json_object", "schema": "x"}, ".schema", "JSON Schema"), ("structured_outputs", "x", "", "object"),
        ("structured_outputs", {"choices": ["a"]}, ".choices", "not known"), ("structured_outputs", {"json": 5}, ".json", "JSON Schema"),
        ("structured_outputs", {"regex": 5}, ".regex", "string"), ("structured_outputs", {"choice": "a"}, ".choice", "array"), ("structured_outputs", {"grammar": {}}, ".grammar", "string"),
        ("structured_outputs", {"json_object": 1}, ".json_object", "true or false"), ("structured_outputs", {"structural_tag": 1}, ".structural_tag", "object"),
        ("structured_outputs", {"json": schema, "disable_any_whitespace": 1}, ".disable_any_whitespace", "true or false"),
        ("structured_outputs", {"json": schema, "whitespace_pattern": " "}, ".whitespace_pattern", "not supported"),
        ("structured_outputs", {"json": schema, "disable_additional_properties": True}, ".disable_additional_properties", "not supported"),
        ("guided_json", 5, "", "JSON Schema"), ("guided_json", "{", "", "not valid JSON"), ("guided_regex", {}, "", "string"), ("guided_choice", "a", "", "array"),
        ("guided_choice", ["a", 5], "[1]", "string"), ("guided_grammar", 5, "", "string"), ("grammar", ["x"], "", "string"), ("json_schema", 5, "", "JSON Schema"),
        ("regex", 5, "", "string"), ("ebnf", 5, "", "string"), ("guided_whitespace_pattern", " ", "", "white space"),
    ]
    with Server("--mock-rate", "0") as s:
        for name, value, below, word in table:
            for path in (CHAT, COMPLETIONS):
                error = refused(send(s, path, **{name: value}), name, word)
                assert error["param"] == name + below, (value, error)
        for one, other in (({"response_format": {"type": "json_object"}}, {"guided_regex": "a"}), ({"grammar": "root ::= \"a\""}, {"structured_outputs": {"choice": ["a"]}}),
                           ({"json_schema": {}}, {"ebnf": "root ::= \"a\""}), ({"guided_json": {}}, {"json_schema": {"type": "object"}})):
            for path in (CHAT, COMPLETIONS):
                message = refused(send(s, path, **one, **other), "")["message"]
                assert all(name in message for name in (*one, *other)) and "both say" in message, message
        assert send(s, CHAT, seed=669, guided_regex="a", structured_outputs={"regex": "a"}, regex="a").status == 200, "the same under several names"
        refused(send(s, CHAT, structured_outputs={"regex": "a", "json_object": True}), "structured_outputs", "structured_outputs.regex and structured_outputs.json_object")


def test_demands_that_ask_for_nothing_are_none():
    with Server("--mock-rate", "0") as s:
        for extra in ({"response_format": {"type": "text"}}, {"structured_outputs": {}}, {"structured_outputs": {"json": None, "json_object": False, "disable_fallback": True}},
                      {"guided_json": None}, {"guided_regex": ""}, {"grammar": "", "json_schema": None, "guided_choice": []}, {"guided_decoding_backend": "outlines"},
                      {"guided_whitespace_pattern": None}):
            for path in (CHAT, COMPLETIONS):
                r = send(s, path, **extra)
                assert r.status == 200, (extra, r.body)


def test_tools_are_checked_with_their_path():
    def tool(**function):
        return {"type": "function", "function": function}
    table = [
        ({"tools": [tool(name="a b")]}, "tools[0].function.name", "a-z"), ({"tools": [tool(name="")]}, "tools[0].function.name", "1 to 64"),
        ({"tools": [tool(name="x" * 65)]}, "tools[0].function.name", "1 to 64"), ({"tools": [TOOL, tool(name="f", parameters=[])]}, "tools[1].function.parameters", "object"),
        ({"tools": [tool(name="f", strict=1)]}, "tools[0].function.strict", "true or false"), ({"tools": [tool(name="f", description=1)]}, "tools[0].function.description", "string"),
        ({"tools": [{"type": "function", "function": 5}]}, "tools[0].function", "object"), ({"tools": [TOOL] * 129}, "tools", "128"),
        ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice", "maybe"), ({"tools": [TOOL], "tool_choice": 5}, "tool_choice", "required"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice", "function"), ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function.name", "required"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "'g'"),
        ({"tools": [{"type": "custom", "custom": {}}], "tool_choice": "required"}, "tool_choice", "needs tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools", "required"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}, "tool_choice.allowed_tools.tools", "1 to 128"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [TOOL]}}}, "tool_choice.allowed_tools.mode", "auto"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool(name="g")]}}}, "tool_choice.allowed_tools.tools[0]", "'g'"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls", "true or false"), ({"enable_thinking": "no"}, "enable_thinking", "true or false"),
        ({"reasoning_effort": 1}, "reasoning_effort", "string"), ({"reasoning_format": "x"}, "reasoning_format", "deepseek"), ({"reasoning_format": 1}, "reasoning_format", "string"),
        ({"thinking_token_budget": -2}, "thinking_token_budget", "-1"), ({"separate_reasoning": 0}, "separate_reasoning", "true or false"),
    ]
    with Server("--mock-rate", "0", "--mock-ctx", "100000") as s:
        for extra, param, word in table:
            error = refused(send(s, CHAT, **extra), param, word)
            assert error["param"] == param, (str(extra)[:200], error)
        for extra in ({"tools": [TOOL] * 128}, {"tools": [{"type": "custom", "custom": {"name": "x"}}, {"type": "web_search"}]}, {"tools": [], "tool_choice": "auto"},
                      {"tools": [TOOL], "tool_choice": "none"}, {"tool_choice": "none"}, {"tool_choice": "auto"}, {"tools": [tool(name="f", strict=None, parameters=None)]},
                      {"reasoning_effort": "none"}, {"enable_thinking": False, "chat_template_kwargs": {"a\"b": 1}}):
            r = send(s, CHAT, **extra)
            assert r.status == 200, (str(extra)[:200], r.body)


def test_harmless_values_of_unsupported_fields_are_taken():
    with Server("--mock-rate", "0") as s:
        for path, extra in ((CHAT, {"tool_choice": "auto"}), (CHAT, {"tool_choice": "none", "tools": [{"type": "function", "function": {"name": "f"}}]}),
                            (CHAT, {"response_format": {"type": "text"}}), (CHAT, {"modalities": ["text"]}), (COMPLETIONS, {"best_of": 1}), (COMPLETIONS, {"best_of": 3, "n": 3}), (COMPLETIONS, {"suffix": ""}),
                            (CHAT, {"functions": []}), (CHAT, {"use_beam_search": False}), (CHAT, {"guided_json": None}), (CHAT, {"chat_template": None}),
                            (CHAT, {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": False, "verbosity": "low",
                                    "prediction": None, "prompt_cache_key": "k", "safety_identifier": "s", "reasoning_effort": "high"}),
                            (CHAT, {"user": ["no name"]}), (CHAT, {"something_nobody_knows": [1, {"a": None}]}), (CHAT, {"stop": []}), (CHAT, {"logit_bias": {}}), (CHAT, {"logit_bias": {"5": -100}}),
                            (CHAT, {"seed": -2 ** 63}), (CHAT, {"seed": 2 ** 63 - 1}), (CHAT, {"seed": 9007199254740993}), (CHAT, {"n": 2.0}), (CHAT, {"top_k": -1}),
                            (CHAT, {"bad_words": []}), (COMPLETIONS, {"bad_words": [" x", "hello there"] * 20}), (CHAT, {"allowed_token_ids": [1, 1, 0]}),
                            (CHAT, {"truncate_prompt_tokens": 5}), (CHAT, {"chat_template_kwargs": {"enable_thinking": False}}), (CHAT, {"stop": ["x"] * 16}), (CHAT, {"stop": "x" * 256}),
                            (COMPLETIONS, {"logprobs": 0}), (COMPLETIONS, {"logprobs": False}), (COMPLETIONS, {"prompt": ""}), (COMPLETIONS, {"prompt": [1, 2, 3]})):
            r = send(s, path, **extra)
            assert r.status == 200, (extra, r.body)


def test_messages_are_checked_with_their_path():
    user = {"role": "user", "content": "x"}
    table = [
        ([5], "messages[0]", "object"), ([user, "x"], "messages[1]", "object"), ([{}], "messages[0].role", "required"), ([{"role": 5}], "messages[0].role", "found"),
        ([{"role": "robot", "content": "x"}], "messages[0].role", "robot"), ([{"role": "user"}], "messages[0].content", "required"),
        ([{"role": "user", "content": None}], "messages[0].content", "required"), ([{"role": "user", "content": 5}], "messages[0].content", "string"),
        ([{"role": "user", "content": []}], "messages[0].content", "empty"), ([{"role": "user", "content": [5]}], "messages[0].content[0]", "object"),
        ([{"role": "user", "content": [{}]}], "messages[0].content[0].type", "string"), ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "required"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text", "string"),
        ([user, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "http://x"}}]}], "messages[1].content[1].type", "image_url"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0].type", "input_audio"),
        ([{"role": "user", "content": [{"type": "spam"}]}], "messages[0].content[0].type", "spam"), ([{"role": "user", "content": "x", "name": 5}], "messages[0].name", "string"),
        ([{"role": "assistant"}], "messages[0].content", "required"), ([{"role": "assistant", "tool_calls": 5}], "messages[0].tool_calls", "array"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function", "required"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}], "messages[0].tool_calls[0].function", "arguments"),
    ]
    with Server("--mock-rate", "0") as s:
        for messages, param, word in table:
            error = refused(send(s, CHAT, messages=messages), param, word)
            assert error["param"] == param, error


def test_broken_json_is_refused_with_its_place():
    good = json.dumps(base(CHAT)).encode()
    deep = b"[" * 33 + b"]" * 33
    table = [
        b"", b" ", b"{", b"nonsense", b"[]", b"5", b"\"text\"", b"null", good + b"x", good + good, good + b"\0", b"\xef\xbb\xbf" + good, b"{'a':1}",
        b"{\"a\":1,}", b"{\"a\":01}", b"{\"a\":1.}", b"{\"a\":.5}", b"{\"a\":+1}", b"{\"a\":1e}", b"{\"a\":1e999}", b"{\"a\":-1e999}", b"{\"a\":NaN}",
        b"{\"a\":Infinity}", b"{\"a\":\"\\u0000\"}", b"{\"a\":\"\x01\"}", b"{\"a\":\"\n\"}", b"{\"a\":\"\xff\"}", b"{\"a\":\"\xc0\xaf\"}", b"{\"a\":\"\xed\xa0\x80\"}",
        b"{\"a\":\"\\ud800\"}", b"{\"a\":\"\\udc00\\ud800\"}", b"{\"a\":\"\\x41\"}", b"{\"a\":\"\\u12\"}", b"{\"a\":1,\"a\":2}", b"{\"a\":1,\"\\u0061\":2}",
        b"{\"a\":tru}", b"{\"a\":True}", b"{\"a\" 1}", b"{a:1}", b"{\"a\":1 \"b\":2}", b"{\"a\":[1,]}", b"{\"a\":[,1]}", b"// x\n{}", b"{\"a\":/**/1}",
        b"{\"a\":" + deep + b"}", b"{\"a\":[" + b"1," * 262144 + b"1]}", b"[" * 100000, b"{\"a\":" * 100000,
    ]
    with Server("--mock-rate", "0") as s:
        for path in (CHAT, COMPLETIONS, "/tokenize", "/detokenize"):
            for body in table:
                r = post(s.port, path, body)
                assert r.status == 400, (path, body[:60], r.status, r.body)
                message = r.error()["message"]
                assert len(message) < 400, message
                if body not in (b"[]", b"5", b"\"text\"", b"null"):
                    assert "line" in message or "limit" in message or "more than" in message or "deep" in message, (body[:60], message)


def test_json_at_the_limits_is_read():
    with Server("--mock-rate", "0", "--mock-ctx", "100000") as s:
        assert send(s, CHAT, extra=json.loads("[" * 31 + "]" * 31)).status == 200
        assert send(s, CHAT, extra=[1] * 200000).status == 200
        assert send(s, CHAT, messages=[{"role": "user", "content": "\u00e4\U0001f600\u2028 \"\\/\b\f\n\r\t"}]).status == 200


def test_unknown_models_are_not_found():
    with Server("--mock-rate", "0") as s:
        for path in (CHAT, COMPLETIONS, "/tokenize", "/detokenize"):
            body = {**base(path), "model": "gpt-4", "tokens": [1]}
            r = post(s.port, path, body)
            error = r.error()
            assert r.status == 404 and error["code"] == "model_not_found" and error["param"] == "model" and "mock" in error["message"], error
        for name in ("mock", "mock/alias"):
            assert send(s, CHAT, model=name).json()["model"] == name
        assert get(s.port, "/v1/models/mock/alias").json()["id"] == "mock/alias"
        assert get(s.port, "/v1/models/mock%2Falias").json()["id"] == "mock/alias"
        assert get(s.port, "/v1/models/none").error()["code"] == "model_not_found"


def test_prompts_that_do_not_fit_say_what_fits():
    with Server("--mock-rate", "0", "--mock-ctx", "64") as s:
        for path, body, param in ((COMPLETIONS, {"prompt": "z" * 64}, "prompt"), (COMPLETIONS, {"prompt": ["a", "z" * 90]}, "prompt[1]"),
                                  (CHAT, chat("z" * 64), "messages")):
            r = post(s.port, path, body)
            error = r.error()
            assert r.status == 400 and error["code"] == "context_length_exceeded" and error["param"] == param and "64" in error["message"], error
        r = post(s.port, COMPLETIONS, {"prompt": "z" * 90, "max_tokens": 5})
        assert r.error()["param"] == "prompt" and r.error()["message"] == "This model's maximum context length is 64 tokens; the prompt has 91.", r.body
        r = post(s.port, COMPLETIONS, {"prompt": "z" * 40, "max_tokens": 60})
        assert r.error()["param"] == "max_tokens" and "Ask for at most 23" in r.error()["message"], r.body
        r = post(s.port, COMPLETIONS, {"prompt": "z" * 40, "max_tokens": 23})
        assert r.status == 200 and r.json()["usage"]["total_tokens"] == 64


def test_detokenize_and_tokenize_check_their_fields():
    with Server("--mock-rate", "0") as s:
        for path, body, param in (("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 5}, "prompt"), ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
                                  ("/tokenize", {"messages": 5}, "messages"), ("/tokenize", {"prompt": "a", "model": 5}, "model"), ("/detokenize", {}, "tokens"),
                                  ("/detokenize", {"tokens": "a"}, "tokens"), ("/detokenize", {"tokens": ["a"]}, "tokens[0]"), ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
                                  ("/detokenize", {"tokens": [99999]}, "tokens[0]"), ("/detokenize", {"tokens": [1.5]}, "tokens[0]")):
            r = post(s.port, path, body)
            assert r.status == 400 and r.error()["param"] == param, (path, body, r.body)


def test_names_from_clients_leave_no_broken_character_in_the_log():
    with Server("--mock-rate", "0") as s:
        for name in ("x" + 60 * "\U0001f600", "\x1b[31m\r\n\x7f" + 60 * "\u00e4"):
            error = post(s.port, "/v1/unload_lora_adapter", {"lora_name": name}).error()
            assert name[:20] in error["message"], error
        lines = [line for line in open(s.log.name, "rb").read().splitlines() if b"refused" in line]
        assert len(lines) == 2 and all(line.decode().isprintable() for line in lines), lines


if __name__ == "__main__":
    run_tests(globals())
