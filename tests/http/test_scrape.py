"""/metrics as others read it: the text format by Prometheus' rules, and what llm-d's endpoint picker takes from it (docs/plugin-metric-protocol.md there)."""
import contextlib
import json
import re
import time

from lib import MINUTE, Connection, Server, chat, get, post, render, run_tests

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
GAUGES = {"waiting": "vllm:num_requests_waiting", "running": "vllm:num_requests_running", "usage": "vllm:kv_cache_usage_perc"}


def labels_of(text):
    """Label pairs, unescaped; each name once."""
    out, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        assert m and m[1] not in out, (text, at)
        out[m[1]] = re.sub(r"\\(.)", lambda e: "\n" if e[1] == "n" else e[1], m[2])
        at = m.end()
    return out


def families(text):
    """name -> (type, [(name of the sample, labels, value)]): a family's lines stand together behind its HELP and TYPE, and no series is there twice."""
    out, name, seen = {}, None, set()
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        m = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.*)", line)
        if m and m[1] == "HELP":
            name = m[2]
            assert name not in out and m[3], line
            out[name] = [None, []]
        elif m:
            assert m[2] == name and out[name] == [None, []] and m[3] in ("counter", "gauge", "histogram", "summary"), line
            out[name][0] = m[3]
        else:
            m = re.fullmatch(rf"({NAME})(?:\{{(.*)\}})? (\S+)", line)
            kind = out[name][0]
            assert m and m[1] in [name + end for end in {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}.get(kind, ("",))], line
            labels = labels_of(m[2] or "")
            assert (m[1], tuple(sorted(labels.items()))) not in seen, line
            seen.add((m[1], tuple(sorted(labels.items()))))
            out[name][1].append((m[1], labels, float(m[3])))
    return out


def picked(text):
    """What an endpoint picker knows of a server: the first series of each gauge, labels of the cache's settings, and of adapters the series of the latest time."""
    found = families(text)
    out = {key: found[name][1][0][2] for key, name in GAUGES.items()}
    assert all(found[name][0] == "gauge" for name in GAUGES.values())
    cache = found["vllm:cache_config_info"][1][0][1]
    adapters = max(found["vllm:lora_requests_info"][1], key=lambda sample: sample[2])
    out.update(block_size=int(cache["block_size"]), blocks=int(cache["num_gpu_blocks"]), adapters_max=int(adapters[1]["max_lora"]),
               adapters=[[a for a in adapters[1][kind + "_lora_adapters"].split(",") if a] for kind in ("running", "waiting")], age_s=time.time() - adapters[2])
    return out


def scraped(port):
    r = get(port, "/metrics")
    assert r.status == 200 and r.headers["content-type"].startswith("text/plain; version=0.0.4"), r.headers
    return r.body.decode()


def test_the_text_is_what_prometheus_takes_whatever_the_model_is_called():
    name = 'a "b" \\n\\ {c="d"} e'
    with Server("--served-model-name", name, "--mock-rate", "0") as s:
        assert post(s.port, "/v1/chat/completions", chat(max_tokens=3)).status == 200
        found = families(scraped(s.port))
    for family, (kind, samples) in found.items():
        assert kind and (samples or kind in ("counter", "summary", "gauge")), family
        assert all(labels.get("model_name", name) == name for _, labels, _ in samples), family
        assert kind != "counter" or family.endswith("_total") and all(v >= 0 for _, _, v in samples), family
        if kind == "histogram":
            buckets = [(float(labels["le"]), v) for sample, labels, v in samples if sample.endswith("_bucket")]
            assert buckets == sorted(buckets) and [v for _, v in buckets] == sorted(v for _, v in buckets) and buckets[-1][0] == float("inf"), family
            assert buckets[-1][1] == samples[-1][2], family
    tokens = {labels["source"]: v for _, labels, v in found["vllm:prompt_tokens_by_source_total"][1]}
    assert set(tokens) == {"local_compute", "local_cache_hit", "external_kv_transfer"} and sum(tokens.values()) == found["vllm:prompt_tokens_total"][1][0][2] > 0
    cached = {labels["source"]: v for _, labels, v in found["vllm:prompt_tokens_cached_by_source_total"][1]}
    assert set(cached) == {"device", "host", "p2p", "disk", "external_unspecified"} and sum(cached.values()) == found["vllm:prompt_tokens_cached_total"][1][0][2]


def test_an_endpoint_picker_reads_load_cache_and_adapters():
    with Server("--mock-running", "2", "--mock-rate", "50") as s:
        idle = picked(scraped(s.port))
        assert (idle["waiting"], idle["running"], idle["usage"]) == (0, 0, 0) and idle["block_size"] == 16 and idle["blocks"] > 0, idle
        assert idle["adapters_max"] == 0 and idle["adapters"] == [[], []] and abs(idle["age_s"]) < 60, idle
        with contextlib.ExitStack() as open_ones:
            for _ in range(3):
                c = open_ones.enter_context(contextlib.closing(Connection(s.port)))
                c.send(render("POST", "/v1/chat/completions", json.dumps(chat(max_tokens=4000, stream=True)).encode()))
            end = time.monotonic() + MINUTE
            while (busy := picked(scraped(s.port)))["waiting"] != 1 or busy["running"] != 2:
                assert time.monotonic() < end, busy
                time.sleep(0.02)


run_tests(globals())
