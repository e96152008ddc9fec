"""What clients see of guessed tokens: prediction, the tokens of it that were right, timings, metrics."""
from lib import Server, chat, events, metrics, post, run_tests

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TIMINGS = {"cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_token_ms",
           "predicted_per_second", "draft_n", "draft_n_accepted"}


def content(text):
    return {"type": "content", "content": text}


def guessed(usage):
    details = usage["completion_tokens_details"]
    return details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]


def asks(**extra):
    yield CHAT, chat(max_tokens=20, **extra), lambda r: r["choices"][0]["message"]["content"]
    yield COMPLETIONS, {"prompt": "a b", "max_tokens": 20, **extra}, lambda r: r["choices"][0]["text"]


def test_usage_says_how_much_of_a_prediction_was_right():
    with Server("--mock-rate", "0") as s:
        for path, body, said in asks():
            plain = post(s.port, path, body).json()
            text = said(plain)
            assert guessed(plain["usage"]) == (0, 0), plain
            for given in (text, [{"type": "text", "text": text[:7]}, {"type": "text", "text": text[7:]}]):
                r = post(s.port, path, {**body, "prediction": content(given)}).json()
                assert said(r) == text and guessed(r["usage"]) == (20, 0), r["usage"]
                assert r["usage"]["completion_tokens"] == 20
            right, wrong = guessed(post(s.port, path, {**body, "prediction": content(text[:4] + "~" * 16)}).json()["usage"])
            assert 3 <= right <= 4 and wrong > 0, (right, wrong)
            stream = events(post(s.port, path, {**body, "stream": True, "stream_options": {"include_usage": True}, "prediction": content(text)}).body)
            assert guessed(stream[-2]["usage"]) == (20, 0), stream[-2]


def test_a_prediction_longer_than_the_context_is_used_as_far_as_that_goes():
    with Server("--mock-rate", "0", "--mock-ctx", "64") as s:
        for path, body, said in asks():
            text = said(post(s.port, path, body).json())
            r = post(s.port, path, {**body, "prediction": content(text + "\u00e9" * 100000)})
            assert r.status == 200 and guessed(r.json()["usage"]) == (20, 0), r.body[:300]


def test_a_prediction_of_another_form_is_refused_by_its_path():
    table = [(5, "prediction", "an object"), ({}, "prediction.type", "required"), ({"type": "image"}, "prediction.type", "image"),
             ({"type": 5}, "prediction.type", "5"), ({"type": "content"}, "prediction.content", "required"), (content(5), "prediction.content", "string"),
             (content(None), "prediction.content", "required"), (content([]), "prediction.content", "empty"),
             (content([5]), "prediction.content[0]", "object"), (content([{"type": "image_url"}]), "prediction.content[0].type", "image_url"),
             (content([{"type": "text", "text": 5}]), "prediction.content[0].text", "string")]
    with Server("--mock-rate", "0") as s:
        for value, param, word in table:
            for path, body, _ in asks(prediction=value):
                r = post(s.port, path, body)
                assert r.status == 400 and r.error()["param"] == param and word in r.error()["message"], (value, r.body)
        for path, body, _ in asks(prediction=content("")):
            assert post(s.port, path, body).status == 200


def check(timings, prompt, cached, output, accepted):
    assert set(timings) == TIMINGS, timings
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (cached, prompt - cached, output), timings
    assert timings["draft_n_accepted"] == accepted <= timings["draft_n"], timings
    for phase in ("prompt", "predicted"):
        n, ms = timings[phase + "_n"], timings[phase + "_ms"]
        assert ms >= 0 and abs(timings[phase + "_per_token_ms"] - ms / max(n, 1)) < 0.002, timings
        assert ms == 0 or abs(timings[phase + "_per_second"] * ms / 1000 - n) < 0.1 + n * 0.01 or ms < 0.05, timings


def test_timings_come_where_they_are_wanted_once_and_last():
    with Server("--mock-rate", "2000") as s:
        for path, body, said in asks(n=2):
            text = said(post(s.port, path, body).json())
            plain = post(s.port, path, body).json()
            assert "timings" not in plain and "timings" not in post(s.port, path, {**body, "timings": False}).json()
            body.update(timings=True, prediction=content(text))
            r = post(s.port, path, body).json()
            accepted, rejected = guessed(r["usage"])
            usage = r["usage"]
            check(r["timings"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], 40, accepted)
            assert accepted >= 20 and r["timings"]["draft_n"] == accepted + rejected, r
            assert r["timings"]["predicted_ms"] > 0, r
            for options in ({}, {"stream_options": {"include_usage": True}}):
                stream = events(post(s.port, path, {**body, "stream": True, **options}).body)
                assert [i for i, e in enumerate(stream[:-1]) if "timings" in e] == [len(stream) - 2], stream
                check(stream[-2]["timings"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], 40, accepted)
        r = post(s.port, CHAT, chat(timings="yes"))
        assert r.status == 400 and r.error()["param"] == "timings", r.body


def test_metrics_have_vllms_counters_of_guesses():
    with Server("--mock-rate", "0") as s:
        found = str(metrics(s.port))
        for name in ("num_drafts_total", "num_draft_tokens_total", "num_accepted_tokens_total", "num_accepted_tokens_per_pos_total"):
            assert "vllm:spec_decode_" + name in found, name


if __name__ == "__main__":
    run_tests(globals())
