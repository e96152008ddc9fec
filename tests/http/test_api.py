"""Shapes of answers and streams: OpenAI's, with vLLM's additions where they were asked for."""
import json
import os

from lib import Connection, Server, Skip, chat, events, get, metrics, post, render, run_tests

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SCRIPT = 'The quick brown fox jumps over the lazy dog, says "the mock". '


def text_of(stream):
    out = {}
    for e in stream:
        for c in e["choices"] if e != "[DONE]" else []:
            out[c["index"]] = out.get(c["index"], "") + (c["delta"].get("content", "") if "delta" in c else c["text"])
    return out


def test_a_chat_completion_has_openais_shape():
    with Server("--mock-rate", "0") as s:
        r = post(s.port, CHAT, chat(max_tokens=12, seed=1003)).json()
        assert set(r) == {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"}, r
        assert r["id"].startswith("chatcmpl-") and r["object"] == "chat.completion" and r["model"] == "mock"
        assert r["choices"] == [{"index": 0, "message": {"role": "assistant", "content": "The ", "refusal": None}, "logprobs": None, "finish_reason": "stop"}], r
        u = r["usage"]
        assert u["completion_tokens"] == 3 and u["total_tokens"] == u["prompt_tokens"] + 3 and u["prompt_tokens_details"]["cached_tokens"] == u["prompt_tokens"] // 2
        assert u["completion_tokens_details"]["reasoning_tokens"] == 0
        r = post(s.port, CHAT, chat(max_tokens=3)).json()
        assert r["choices"][0]["finish_reason"] == "length"


def test_a_completion_has_openais_shape():
    with Server("--mock-rate", "0") as s:
        r = post(s.port, COMPLETIONS, {"prompt": "a b"}).json()
        assert r["id"].startswith("cmpl-") and r["object"] == "text_completion" and r["usage"]["completion_tokens"] == 16
        assert set(r["choices"][0]) == {"index", "text", "logprobs", "finish_reason"} and r["choices"][0]["finish_reason"] == "length"
        r = post(s.port, COMPLETIONS, {"prompt": "a b", "max_tokens": 0}).json()
        assert r["choices"][0]["text"] == "" and r["usage"]["completion_tokens"] == 0


def test_prompts_of_every_form_make_choices_in_openais_order():
    with Server("--mock-rate", "0") as s:
        for prompt, n in (("a", 1), (["a", "b", "c"], 3), ([97, 98], 1), ([[97], [98, 99]], 2)):
            r = post(s.port, COMPLETIONS, {"prompt": prompt, "n": 2, "max_tokens": 4, "echo": True}).json()
            assert [c["index"] for c in r.get("choices", [])] == list(range(2 * n)), r
            first = {"a": "a"}.get(prompt) if isinstance(prompt, str) else None
            texts = [c["text"] for c in r["choices"]]
            if prompt == ["a", "b", "c"]:
                assert [t[0] for t in texts] == list("aabbcc"), texts
            if prompt == [[97], [98, 99]]:
                assert texts[0].startswith("a") and texts[2].startswith("bc"), texts
            if first:
                assert texts[0].startswith("a")
            assert r["usage"]["completion_tokens"] == 8 * n


def test_streamed_and_whole_answers_say_the_same():
    with Server("--mock-rate", "0") as s:
        for path, body in ((CHAT, chat(max_tokens=100, n=3)), (COMPLETIONS, {"prompt": ["a", "b"], "max_tokens": 100, "n": 2, "echo": True})):
            whole = post(s.port, path, body).json()
            raw = post(s.port, path, {**body, "stream": True})
            assert raw.headers["content-type"].startswith("text/event-stream") and raw.headers["cache-control"] == "no-cache"
            assert raw.headers["x-accel-buffering"] == "no", "nginx passes events on as they come"
            stream = events(raw.body)
            assert stream[-1] == "[DONE]"
            said = text_of(stream)
            for c in whole["choices"]:
                assert said[c["index"]] == (c["message"]["content"] if path == CHAT else c["text"])


def test_chunks_have_the_recorded_shape():
    data = os.environ.get("QUIRE_DATA", os.path.join(os.path.dirname(__file__), "../../../shared/data"))
    sample = os.path.join(data, "openai-sse", "e2aad469b71d.sse")
    if not os.path.exists(sample):
        raise Skip("no conformance data (QUIRE_DATA): " + sample)
    with open(sample, "rb") as f:
        recorded = events(f.read().rstrip(b"\n") + b"\n\n")
    with Server("--mock-rate", "0") as s:
        ours = events(post(s.port, CHAT, chat(max_tokens=5, stream=True, stream_options={"include_usage": True})).body)
    ours = [{k: v for k, v in e.items() if k != "usage" or v is not None} if e != "[DONE]" else e for e in ours]

    def shape(e):
        if e == "[DONE]":
            return e
        c = e["choices"][0] if e["choices"] else None
        return sorted(e), sorted(c) if c else None, sorted(c["delta"]) if c else None
    assert shape(ours[0]) == shape(recorded[0]) and shape(ours[1]) == shape(recorded[1])
    assert [shape(e) for e in ours[-3:]] == [shape(e) for e in recorded[-3:]]
    assert ours[0]["choices"][0]["delta"] == recorded[0]["choices"][0]["delta"]
    assert len({e["id"] for e in ours[:-1]}) == 1 and len({e["created"] for e in ours[:-1]}) == 1


def test_usage_comes_when_asked_for_and_only_then():
    with Server("--mock-rate", "0") as s:
        plain = events(post(s.port, CHAT, chat(max_tokens=3, stream=True)).body)
        assert all("usage" not in e for e in plain[:-1])
        asked = events(post(s.port, CHAT, chat(max_tokens=3, stream=True, stream_options={"include_usage": True})).body)
        assert all(e["usage"] is None for e in asked[:-2]) and asked[-2]["choices"] == [] and asked[-2]["usage"]["completion_tokens"] == 3
        running = events(post(s.port, CHAT, chat(max_tokens=3, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})).body)
        assert [e["usage"]["completion_tokens"] for e in running[:-1]][-2:] == [3, 3]


def test_chat_logprobs_have_tokens_bytes_and_alternatives():
    with Server("--mock-rate", "0", "--mock-script", "a\u00e4\u65e5") as s:
        r = post(s.port, CHAT, chat(max_tokens=6, logprobs=True, top_logprobs=2)).json()["choices"][0]
        content = r["logprobs"]["content"]
        assert r["logprobs"]["refusal"] is None and len(content) == 6
        assert bytes(b for t in content for b in t["bytes"]).decode() == "a\u00e4\u65e5" == r["message"]["content"]
        assert content[0]["token"] == "a" and content[0]["logprob"] == -0.25 and [t["logprob"] for t in content[0]["top_logprobs"]] == [-0.25, -1.25]
        r = post(s.port, CHAT, chat(max_tokens=6, logprobs=True)).json()["choices"][0]
        assert r["logprobs"]["content"][0]["top_logprobs"] == []
        whole = post(s.port, CHAT, chat(max_tokens=6, logprobs=True, top_logprobs=20)).json()["choices"][0]["logprobs"]["content"]
        stream = events(post(s.port, CHAT, chat(max_tokens=6, logprobs=True, top_logprobs=20, stream=True)).body)
        parts = [t for e in stream[:-1] for c in e["choices"] if c["logprobs"] for t in c["logprobs"]["content"]]
        assert parts == whole


def test_completion_logprobs_have_four_columns_and_offsets():
    with Server("--mock-rate", "0", "--mock-script", "a\u00e4b\u65e5c") as s:
        r = post(s.port, COMPLETIONS, {"prompt": "x\u00fc", "max_tokens": 8, "logprobs": 1, "echo": True}).json()["choices"][0]
        lp = r["logprobs"]
        n = len(lp["tokens"])
        assert n == 12 and all(len(lp[k]) == n for k in ("token_logprobs", "top_logprobs", "text_offset")), lp
        assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None and lp["token_logprobs"][1] == -0.25
        assert "bytes:\\xc3" in lp["tokens"], lp["tokens"]
        for token, offset in zip(lp["tokens"], lp["text_offset"]):
            if len(token) == 1:
                assert r["text"][offset] == token, (token, offset, r["text"])
        assert "prompt_logprobs" not in r
        whole = post(s.port, COMPLETIONS, {"prompt": "x", "max_tokens": 8, "logprobs": 3}).json()["choices"][0]["logprobs"]
        stream = events(post(s.port, COMPLETIONS, {"prompt": "x", "max_tokens": 8, "logprobs": 3, "stream": True}).body)
        for key in whole:
            assert [v for e in stream[:-1] for c in e["choices"] if c["logprobs"] for v in c["logprobs"][key]] == whole[key], key


def test_scoring_a_prompt_needs_no_output():
    with Server("--mock-rate", "0") as s:
        r = post(s.port, COMPLETIONS, {"prompt": "abc", "max_tokens": 0, "echo": True, "logprobs": 0}).json()["choices"][0]
        assert r["text"] == "abc" and r["logprobs"]["tokens"] == ["<|bos|>", "a", "b", "c"], r
        r = post(s.port, COMPLETIONS, {"prompt": "abc", "max_tokens": 1, "prompt_logprobs": 2}).json()["choices"][0]
        assert r["prompt_logprobs"][0] is None and r["prompt_logprobs"][1]["97"] == {"logprob": -0.25, "rank": 1, "decoded_token": "a"}, r
        assert "prompt_logprobs" in post(s.port, CHAT, chat(max_tokens=1, prompt_logprobs=0)).json()


def test_token_ids_come_back_when_asked_for():
    with Server("--mock-rate", "0") as s:
        r = post(s.port, COMPLETIONS, {"prompt": [97, 98], "max_tokens": 5, "return_token_ids": True}).json()["choices"][0]
        assert r["prompt_token_ids"] == [97, 98] and len(r["token_ids"]) == 5
        back = post(s.port, "/detokenize", {"tokens": r["token_ids"]}).json()["prompt"]
        assert back == r["text"]
        stream = events(post(s.port, COMPLETIONS, {"prompt": [97, 98], "max_tokens": 5, "return_token_ids": True, "stream": True}).body)
        assert [i for e in stream[:-1] for i in e["choices"][0]["token_ids"]] == r["token_ids"] and stream[0]["choices"][0]["prompt_token_ids"] == [97, 98]
        r = post(s.port, CHAT, chat(max_tokens=2, return_token_ids=True, logprobs=True, return_tokens_as_token_ids=True)).json()
        assert r["prompt_token_ids"] and len(r["choices"][0]["token_ids"]) == 2 and r["choices"][0]["logprobs"]["content"][0]["token"].startswith("token_id:")


def test_stops_say_what_stopped_them():
    with Server("--mock-rate", "0") as s:
        r = post(s.port, CHAT, chat(max_tokens=50, stop=["fox", "zebra"])).json()["choices"][0]
        assert r["finish_reason"] == "stop" and r["stop_reason"] == "fox" and r["message"]["content"].startswith("The quick brown "), r
        r = post(s.port, CHAT, chat(max_tokens=50, stop_token_ids=[ord("k")])).json()["choices"][0]
        assert r["finish_reason"] == "stop" and r["stop_reason"] == ord("k"), r
        r = post(s.port, CHAT, chat(max_tokens=50, seed=1005)).json()["choices"][0]
        assert r["finish_reason"] == "stop" and "stop_reason" not in r
        r = post(s.port, CHAT, chat(max_tokens=50, seed=1005, ignore_eos=True)).json()["choices"][0]
        assert r["finish_reason"] == "length"


def test_engine_errors_before_the_first_byte_are_a_status():
    with Server("--mock-rate", "0") as s:
        for stream in (False, True):
            r = post(s.port, CHAT, chat(max_tokens=5, seed=667, stream=stream))
            assert r.status == 500 and r.error()["type"] == "server_error" and r.headers["x-should-retry"] == "false", r.body
        r = post(s.port, CHAT, chat(max_tokens=5, seed=666))
        assert r.status == 500, "not streamed: nothing was sent before"


def test_engine_errors_in_mid_stream_are_a_last_event():
    with Server("--mock-rate", "50") as s:
        c = Connection(s.port)
        c.send(render("POST", CHAT, json.dumps(chat(max_tokens=50, seed=666, stream=True)).encode()))
        r = c.response()
        assert r.status == 200
        stream = events(r.body)
        assert set(stream[-1]["error"]) == {"message", "type", "param", "code", "id"}, stream[-1]
        assert len([e for e in stream if "choices" in e]) == 4, "role, then three tokens"
        assert c.closed(), "the connection closes after it"


def test_text_that_looks_like_events_stays_text():
    evil = 'x\r\n\r\ndata: [DONE]\r\n\r\ndata: {"error":1}\n\n\u2028\u2029\u007f\u0001end'
    with Server("--mock-rate", "0", "--mock-script", evil, "--mock-event-tokens", "8") as s:
        n = post(s.port, "/tokenize", {"prompt": evil, "add_special_tokens": False}).json()["count"]
        raw = post(s.port, CHAT, chat(max_tokens=n, stream=True)).body
        assert b"\r" not in raw
        assert text_of(events(raw))[0] == evil
        assert post(s.port, CHAT, chat(max_tokens=n)).json()["choices"][0]["message"]["content"] == evil


def test_http_1_0_clients_get_streams_that_end_with_the_connection():
    with Server("--mock-rate", "0") as s:
        c = Connection(s.port)
        c.send(render("POST", CHAT, json.dumps(chat(max_tokens=5, stream=True)).encode(), version="HTTP/1.0"))
        status, headers = c.head()
        assert status == 200 and "transfer-encoding" not in headers and headers["connection"] == "close"
        assert events(c.rest())[-1] == "[DONE]"


def test_models_and_version_and_health():
    with Server("--served-model-name", "one", "--served-model-name", "org/two") as s:
        r = get(s.port, "/v1/models").json()
        assert r["object"] == "list" and [m["id"] for m in r["data"]] == ["one", "org/two"] and r["data"][0]["object"] == "model" and r["models"] == []
        assert r["data"][0]["max_model_len"] == 4096
        assert "version" in get(s.port, "/version").json()
        for path, word in (("/health", "ok"), ("/livez", "ok"), ("/readyz", "ready")):
            assert get(s.port, path).json() == {"status": word}


def test_a_name_that_is_no_utf8_is_one_that_clients_can_say():
    with Server("--mock-rate", "0", "--served-model-name", "caf\udce9") as s:  # a byte of Latin-1
        name = get(s.port, "/v1/models").json()["data"][0]["id"]
        assert name == "caf\ufffd" and get(s.port, "/metrics").body.decode().count('"caf\ufffd"') > 10
        r = post(s.port, CHAT, chat(max_tokens=1, model=name))
        assert r.status == 200 and r.json()["model"] == name, r.body


def test_an_adapter_whose_files_are_replaced_while_a_request_is_prepared_is_found_again():
    with Server("--mock-rate", "0") as s:
        r = post(s.port, COMPLETIONS, {"model": "replaced", "prompt": "a", "max_tokens": 2})
        assert r.status == 200 and r.json()["model"] == "replaced", r.body
        r = post(s.port, COMPLETIONS, {"model": "replaced", "prompt": ["a", "b"], "max_tokens": 2})
        assert r.status == 200 and len(r.json()["choices"]) == 2, r.body
    with Server("--mock-rate", "0") as s:
        r = post(s.port, COMPLETIONS, {"model": "removed", "prompt": "a", "max_tokens": 2})
        assert r.status == 404 and r.error()["code"] == "model_not_found", r.body


def test_tokenize_gives_a_conversation_the_ids_that_chat_computes():
    tools = [{"type": "function", "function": {"name": "add"}}]
    called = [{"role": "user", "content": "1 + 2?"}, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{\"x\": 1, \"y\": 2}"}}]}, {"role": "tool", "content": "3", "tool_call_id": "a"}]
    with Server("--mock-rate", "0") as s:
        for body in (chat("hi"), chat("hi", add_special_tokens=True), {"messages": called, "tools": tools}, {"messages": called, "tools": tools, "tool_choice": "none"},
                     {"messages": called[:1], "add_generation_prompt": False}, {"messages": called[:1], "continue_final_message": True},
                     {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}):
            told = post(s.port, CHAT, {**body, "max_tokens": 1, "return_token_ids": True}).json()["prompt_token_ids"]
            assert post(s.port, "/tokenize", body).json()["tokens"] == told, body
        assert "arguments" not in post(s.port, "/detokenize", {"tokens": told}).json()["prompt"]
        r = post(s.port, "/tokenize", {"messages": called[:1], "chat_template_kwargs": {"messages": 1}})
        assert r.status == 400 and r.error()["param"].startswith("chat_template_kwargs"), r.body


def test_render_tells_what_a_call_would_compute():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    asked = [{}, {"tools": [tool]}, {"tools": [tool], "tool_choice": "required"}, {"response_format": {"type": "json_object"}}, {"max_tokens": 7}, {"n": 3, "seed": 1}, {"stream": True, "stream_options": {"include_usage": True}},
             {"truncate_prompt_tokens": 5}, {"add_generation_prompt": False}, {"chat_template_kwargs": {"enable_thinking": False}}]
    with Server("--mock-rate", "0") as s:
        before = metrics(s.port)
        for fields in asked:
            r = post(s.port, CHAT + "/render", chat("hi there", **fields)).json()
            assert set(r) == {"request_id", "model", "token_ids", "features", "sampling_params"} and r["request_id"].startswith("chatcmpl-") and r["model"] == "mock" and r["features"] is None, r
            assert r["sampling_params"]["max_tokens"] == fields.get("max_tokens", 4096 - len(r["token_ids"])), r
            if "tool_choice" not in fields and "response_format" not in fields:
                computed = post(s.port, CHAT, {**chat("hi there"), **fields, "max_tokens": 1, "return_token_ids": True, "stream": False, "stream_options": None}).json()["prompt_token_ids"]
                assert r["token_ids"] == computed, (fields, r, computed)
        for prompt, n in (("hi", 1), (["hi", "you"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2)):
            r = post(s.port, COMPLETIONS + "/render", {"prompt": prompt}).json()
            assert isinstance(r, list) and len(r) == n and all(one["sampling_params"]["max_tokens"] == 16 for one in r), r
            computed = post(s.port, COMPLETIONS, {"prompt": prompt, "max_tokens": 1, "return_token_ids": True}).json()["choices"]
            assert [one["token_ids"] for one in r] == [c["prompt_token_ids"] for c in computed], (r, computed)
        after = metrics(s.port)
        name = "quire_submitted_requests_total"
        assert after[name] - before[name] == sum("tool_choice" not in f and "response_format" not in f for f in asked) + 6, "what is rendered is not computed"
        for path, bad in ((CHAT, {}), (CHAT, chat(temperature=3)), (CHAT, chat(model="x")), (CHAT, chat("x" * 6000)), (CHAT, chat(tools=1)), (COMPLETIONS, {}), (COMPLETIONS, {"prompt": [10 ** 6]})):
            a, b = post(s.port, path + "/render", bad), post(s.port, path, bad)
            assert a.status == b.status >= 400 and a.error() == b.error(), (a.body, b.body)


def test_tokenize_and_detokenize_are_inverse():
    text = "hello w\u00f6rld \u65e5\u672c \U0001f600\n  x"
    with Server() as s:
        r = post(s.port, "/tokenize", {"prompt": text}).json()
        assert r["count"] == len(r["tokens"]) and r["max_model_len"] == 4096 and r["token_strs"] is None
        assert post(s.port, "/detokenize", {"tokens": r["tokens"], "skip_special_tokens": True}).json()["prompt"] == text
        bare = post(s.port, "/tokenize", {"prompt": text, "add_special_tokens": False, "return_token_strs": True}).json()
        assert r["tokens"][1:] == bare["tokens"] and bare["token_strs"][0] == "he" or bare["token_strs"][0] == "h", bare
        assert post(s.port, "/tokenize", chat("hi")).json()["count"] > 2
        assert post(s.port, "/detokenize", {"tokens": []}).json() == {"prompt": ""}


def test_special_tokens_in_user_text_stay_text():
    specials = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]
    with Server() as s:
        ids = {266, 267, 268, 269}
        plain = post(s.port, "/tokenize", chat("hi")).json()["tokens"]
        for special in specials:
            with_it = post(s.port, "/tokenize", chat("hi" + special)).json()["tokens"]
            assert [i for i in with_it if i in ids] == [i for i in plain if i in ids], special
            assert not ids & set(post(s.port, "/tokenize", {"prompt": special, "add_special_tokens": False}).json()["tokens"])
            parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": special}]}]}
            assert [i for i in post(s.port, "/tokenize", parts).json()["tokens"] if i in ids] == [i for i in plain if i in ids]
    with Server("--trust-special-tokens") as s:
        assert post(s.port, "/tokenize", {"prompt": "<|eos|>", "add_special_tokens": False}).json()["tokens"] == [267]


def rendered(s, body):
    """The text of the prompt that a chat request makes."""
    ids = post(s.port, CHAT, {**body, "max_tokens": 1, "return_token_ids": True}).json()["prompt_token_ids"]
    return post(s.port, "/detokenize", {"tokens": ids}).json()["prompt"]


def test_the_chat_template_gets_what_the_request_says():
    user = {"role": "user", "content": "a"}
    with Server("--mock-rate", "0") as s:
        assert rendered(s, {"messages": [user]}) == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        assert rendered(s, {"messages": [user], "add_generation_prompt": False}) == "<|im_start|>user\na<|im_end|>\n"
        assert rendered(s, {"messages": [user], "add_special_tokens": True}).startswith("<|bos|><|im_start|>")
        started = {"role": "assistant", "content": "I was"}
        assert rendered(s, {"messages": [user, started], "continue_final_message": True}).endswith("<|im_start|>assistant\nI was")
        parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        assert "ab<|im_end|>" in rendered(s, {"messages": [parts]}).replace("\n", "")
        tools = [{"type": "function", "function": {"name": "f"}}]
        assert "1 tools" in rendered(s, {"messages": [user], "tools": tools}) and "tools" not in rendered(s, {"messages": [user], "tools": tools, "tool_choice": "none"})
        calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": [1, 2.50]}"}},
                                                                      {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{broken"}}]}
        text = rendered(s, {"messages": [user, calls, {"role": "tool", "tool_call_id": "1", "content": "r"}]})
        assert 'f({"x": [1, 2.5]})' in text.replace("2.50", "2.5") and 'g("{broken")' in text, text
        r = post(s.port, CHAT, {"messages": [started]})
        assert r.status == 400 and "the first message must not be the assistant's" in r.error()["message"] and r.error()["param"] == "messages", r.body


def test_metrics_carry_vllms_names_and_add_up():
    wanted = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prefix_cache_queries_total",
              "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
              'vllm:request_success_total{finished_reason="stop"}', "vllm:time_to_first_token_seconds_count", "vllm:inter_token_latency_seconds_sum",
              'vllm:e2e_request_latency_seconds_bucket{le="+Inf"}', "vllm:request_prompt_tokens_count", "vllm:request_generation_tokens_count",
              "vllm:iteration_tokens_total_count", "vllm:request_queue_time_seconds_count", "vllm:request_time_per_output_token_seconds_count"]
    with Server("--mock-rate", "0") as s:
        for i in range(3):
            post(s.port, CHAT, chat(max_tokens=4))
        post(s.port, CHAT, chat(max_tokens=4, seed=1002))
        m = metrics(s.port)
        assert not [name for name in wanted if name not in m], [name for name in wanted if name not in m]
        assert m['vllm:request_success_total{finished_reason="length"}'] == 3 and m['vllm:request_success_total{finished_reason="stop"}'] == 1
        assert m["quire_submitted_requests_total"] == m["quire_ended_requests_total"] == 4 and m["quire_calls"] == 0
        raw = get(s.port, "/metrics")
        assert raw.headers["content-type"].startswith("text/plain; version=0.0.4")
        typed = {line.split()[2]: line.split()[3] for line in raw.body.decode().splitlines() if line.startswith("# TYPE")}
        assert len(typed) > 40 and len(typed) == raw.body.count(b"# TYPE"), "every name is typed once"
        buckets = [m[k] for k in m if k.startswith("vllm:e2e_request_latency_seconds_bucket")]
        assert buckets == sorted(buckets)


def test_without_a_chat_template_chat_says_so():
    with Server("--no-chat-template") as s:
        r = post(s.port, CHAT, chat())
        assert r.status == 400 and r.error()["code"] == "no_chat_template" and "/v1/completions" in r.error()["message"]


if __name__ == "__main__":
    run_tests(globals())
