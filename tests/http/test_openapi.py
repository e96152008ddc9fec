"""/openapi.json and /docs say what the tables say, and every error that a client may be told is in the index."""
import glob
import json
import os
import re
import subprocess
import sys

from lib import HERE, Server, call, get, post, run_tests

SERVER = os.path.join(HERE, "..", "..", "server")
WRONG = {"string": 7, "boolean": "x", "array": "x", "integer": "x", "number": "x", "object": "x"}
BESIDE = {"/tokenize": {"prompt": "x"}, "/detokenize": {"tokens": [1]}, "/v1/embeddings": {"input": "x"}, "/v1/rerank": {"query": "x", "documents": ["x"]},
          "/v1/load_lora_adapter": {"lora_name": "x", "lora_path": "x"}, "/v1/unload_lora_adapter": {"lora_name": "x"}}


def good_body(path):
    if "responses" in path:
        return {"input": "x"}
    if path.endswith("rerank"):
        return BESIDE["/v1/rerank"]
    return BESIDE.get(path, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1} if "chat" in path or "messages" in path else {"prompt": "x"})


def index():
    """The rows of error_index.c."""
    with open(os.path.join(SERVER, "error_index.c"), encoding="utf-8") as f:
        return re.findall(r'\{"(Q\d+)", (?:"([a-z_]+)"|NULL), "([^"]+)"', f.read())


def codes_in_the_source():
    """What is given to qr_api_error_set, or is assigned to a code."""
    found = set()
    for path in glob.glob(os.path.join(SERVER, "*.c")):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        found |= set(re.findall(r'qr_api_error_set\([^;"]*?, \d+, "([a-z_]+)"', text)) | set(re.findall(r'#define CODE "([a-z_]+)"', text))
        for statement in re.findall(r'\bcode = ([^;]*);', text):
            found |= set(re.findall(r'"([a-z_]+)"', statement))
        if path.endswith("api_error.c"):
            found |= set(re.findall(r'\{QR_E_[A-Z_]+, \d+, "([a-z_]+)"\}', text))
    return found


def test_every_code_has_one_id_which_errors_of_every_api_carry():
    rows = index()
    assert len(rows) > 25 and len({r[0] for r in rows}) == len(rows) and len({r[1] for r in rows}) == len(rows), rows
    missing = codes_in_the_source() - {code for _, code, _ in rows}
    assert len(codes_in_the_source()) > 20 and not missing, missing
    ids = {code: (number, status.split(", ")) for number, code, status in rows}
    with Server("--mock-rate", "0") as s:
        for path, body in (("/v1/chat/completions", {"messages": 1}), ("/v1/completions", {"prompt": "x", "model": "none"}), ("/nothing", {})):
            r = post(s.port, path, body)
            number, statuses = ids[r.error()["code"]]
            assert r.error()["id"] == r.headers["x-error-id"] == number and str(r.status) in statuses, r.body
        for path, body in (("/v1/messages", {"messages": 1}), ("/api/chat", {"messages": 1}), ("/v1/responses", {"input": 1})):
            assert post(s.port, path, body).headers["x-error-id"] == "Q100", path
        r = call(s.port, "PUT", "/v1/models")
        assert r.status == 405 and r.headers["x-error-id"] == ids["method_not_allowed"][0], (r.status, r.headers)


def test_the_description_has_every_route_and_every_field_of_the_tables():
    routes = [json.loads(line) for line in subprocess.run([sys.argv[1], "--routes"], capture_output=True, text=True, check=True).stdout.splitlines()]
    fields = [json.loads(line) for line in subprocess.run([sys.argv[1], "--fields"], capture_output=True, text=True, check=True).stdout.splitlines()]
    with Server("--mock-rate", "0", "--api-key", "k") as s:
        r = get(s.port, "/openapi.json")
        assert r.status == 200 and r.headers["content-type"] == "application/json", "it is public"
        spec = r.json()
        page = get(s.port, "/docs")
        assert page.status == 200 and "default-src 'none'" in page.headers["content-security-policy"], page.headers
        text = page.body.decode()
    assert spec["openapi"] == "3.1.0"
    ids = []
    for route in routes:
        path = route["path"]
        if path.endswith("/") and path != "/":
            path += "{id}/cancel" if path.startswith("/v1/ops") else "{id}"
        operation = spec["paths"][path][route["method"].lower()]
        ids.append(operation["operationId"])
        assert len(operation["summary"]) > 10 and path in text, path
        assert (operation["security"] == []) == (route["access"] == "public"), path
    assert len(set(ids)) == len(ids)
    chat = spec["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    for field in fields:
        if field["chat"]:
            told = chat[field["name"]]
            if field["type"] in ("int", "float"):
                assert told["minimum"] == field["min"], field
                assert ("maximum" in told) != field["max_is_ctx"], field
    for number, code, _ in index():
        assert f"<tr id={number}>" in text and (code or "") in text
    assert "http://" not in text and "https://" not in text and "<script" not in text


def test_every_field_that_it_names_is_known_with_that_type():
    with Server("--mock-rate", "0") as s, Server("--mock-rate", "0", "--mock-scorer", "texts") as pairs:
        spec = get(s.port, "/openapi.json").json()
        n, wrong = 0, []
        for path, methods in spec["paths"].items():
            if "requestBody" not in methods.get("post", {}) or "/ops/" in path:
                continue
            schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
            for name, told in schema["properties"].items():
                kind = told.get("type")
                if not kind:
                    continue
                r = post((pairs if "rank" in path or "score" in path else s).port, path, {**good_body(path), name: WRONG[kind]})
                if r.status != 400 or name not in r.body.decode():
                    wrong.append((path, name, told, r.status, r.body))
                n += 1
        assert n > 60 and not wrong, (n, wrong)
        bare = [p for p, m in spec["paths"].items() if "requestBody" in m.get("post", {}) and
                not m["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]]
        assert not bare, "bodies without a field: %s" % bare


if __name__ == "__main__":
    run_tests(globals())
