#!/usr/bin/env python3
"""Grammars of JSON schemas beside other programs: how fast masks are, and whether what they let through is valid.

    python3 -m venv /tmp/answers && /tmp/answers/bin/pip install jsonschema[format-nongpl] llguidance tokenizers numpy pydantic apache-tvm-ffi
    /tmp/answers/bin/pip install --no-deps xgrammar                 with what it needs it is gigabytes
    /tmp/answers/bin/python tools/check_answers.py bench            masks and compilation beside llguidance and xgrammar
    /tmp/answers/bin/python tools/check_answers.py instances        the schemas' own instances, valid and not
    /tmp/answers/bin/python tools/check_answers.py walks            texts drawn at random from masks, judged by jsonschema

Optional: nothing builds or tests with it. Schemas and instances are those of QUIRE_DATA (answers/, json-schema/), tokenizers those of QUIRE_DATA/tokenizers.

bench: each engine reads the first valid instance in order of --schemas real schemas token by token, compact, in one thread, and a mask is made before each token and behind the last.
Each runs in a process of its own, which is ended where one schema takes longer than --limit; --budget bounds an engine with one vocabulary.
Times are the processor's; compiling ends before the first mask, but quire's has made it.
instances: in three forms of json.dumps. A valid one must be accepted where its members are in the schema's order, an invalid one never. Ends with status 1 where one is accepted.
walks: `quire grammar` draws the texts (cli/grammar_walk.h); numbers are compared as decimals, exactly. Ends with status 1 where a text is not valid.
"""
import argparse
import collections
import decimal
import importlib.util
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import threading
import time
import types
import unittest.mock

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from schema_valid import ecma  # noqa: E402
DATA = os.environ.get("QUIRE_DATA") or os.path.join(ROOT, "..", "shared", "data")
os.environ.setdefault("RAYON_NUM_THREADS", "1")
START_S = 120  # for an engine to read a vocabulary


def jsonl(name):
    with open(os.path.join(DATA, name), encoding="utf-8", newline="\n") as f:
        return [json.loads(line) for line in f.read().split("\n") if line]


def real_schemas():
    return jsonl("answers/schemas.jsonl") + jsonl("json-schema/real_schemas.jsonl")


class Quire:
    """`quire grammar`: a line in, a line out."""

    def __init__(self, program, vocabulary, *flags):
        folder = os.path.join(DATA, "tokenizers", vocabulary)
        self.process = subprocess.Popen([program, "grammar", "--model", folder, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def write(self, line):
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"quire grammar ended with {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- bench: an engine is a function of a vocabulary that gives a function of (schema, text): {"error"} or {"compile_us", "masks_us", "taken"} ----


def tokenizer_file(vocabulary):
    return os.path.join(DATA, "tokenizers", vocabulary, "tokenizer.json")


def since(began_ns):
    return (time.thread_time_ns() - began_ns) / 1000


def quire(vocabulary, args):
    q = Quire(args.quire, vocabulary, "--masks")

    def read(schema, text):
        q.write({"schema": schema, "text": text, "each": True})
        r = q.read()
        return {"error": f"{r.get('path')}: {r['error']}"} if not r["ok"] else {"compile_us": r["compile_us"], "masks_us": r["each_us"], "taken": r["accepted"] and r["tokens_ok"]}
    return read


def token_ids(tokenizer, text):
    """Ids whose bytes are the text: SentencePiece's tokenizers would put a blank before it."""
    mark = tokenizer.encode("\n", add_special_tokens=False).ids
    ids = tokenizer.encode("\n" + text, add_special_tokens=False).ids
    return ids[len(mark):] if ids[:len(mark)] == mark else tokenizer.encode(text, add_special_tokens=False).ids


def along(ids, fill, take, ends):
    """Masks along a path, and whether all of it was taken."""
    masks_us = []
    for i in [*ids, None]:
        began = time.thread_time_ns()
        fill()
        masks_us.append(since(began))
        if i is None or not take(i):
            return {"masks_us": masks_us, "taken": i is None and ends()}


def llguidance(vocabulary, _):
    from llguidance import LLMatcher, LLTokenizer
    from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(tokenizer_file(vocabulary))
    with open(tokenizer_file(vocabulary), encoding="utf-8") as f:
        ll = LLTokenizer(f.read())
    mask = allocate_token_bitmask(1, ll.vocab_size)

    def read(schema, text):
        began = time.thread_time_ns()
        matcher = LLMatcher(ll, LLMatcher.grammar_from_json_schema(schema))
        compile_us = since(began)
        if matcher.is_error():
            return {"error": matcher.get_error()}
        return {"compile_us": compile_us, **along(token_ids(tokenizer, text), lambda: fill_next_token_bitmask(matcher, mask, 0), matcher.consume_token, matcher.is_accepting)}
    return read


def xgrammar(vocabulary, _):
    import numpy
    import tvm_ffi  # noqa: F401  pylint: disable=unused-import  (asks for torch, and takes no stand-in)
    for name in ("torch", "transformers"):  # imported for what is not used here
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = unittest.mock.MagicMock()
    import xgrammar as xgr
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(tokenizer_file(vocabulary))
    words = sorted(tokenizer.get_vocab().items(), key=lambda word: word[1])
    pieces = xgr.VocabType.BYTE_FALLBACK if tokenizer.token_to_id("<0x00>") is not None else xgr.VocabType.BYTE_LEVEL
    end = next(i for i in (tokenizer.token_to_id(t) for t in ("<|eot_id|>", "<|im_end|>", "<|endoftext|>", "</s>")) if i is not None)
    info = xgr.TokenizerInfo([w for w, _ in words], pieces, vocab_size=len(words), stop_token_ids=[end])
    compiler = xgr.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    mask = numpy.zeros((1, (len(words) + 31) // 32), numpy.int32)

    def read(schema, text):
        began = time.thread_time_ns()
        try:
            compiled = compiler.compile_json_schema(json.dumps(schema))
        except RuntimeError as e:
            return {"error": str(e)}
        matcher = xgr.GrammarMatcher(compiled)
        compile_us = since(began)
        return {"compile_us": compile_us, **along(token_ids(tokenizer, text), lambda: matcher.fill_next_token_bitmask(mask), matcher.accept_token, lambda: matcher.accept_token(end))}
    return read


def work(engine, vocabulary, args, cases, pipe):
    read = engine(vocabulary, args)
    pipe.send("ready")
    for schema, text in cases:
        pipe.send(read(schema, text))


def measured(engine, vocabulary, args, cases):
    """A result for each case until the budget is used up."""
    results, began = [], time.monotonic()

    def goes_on():
        return len(results) < len(cases) and time.monotonic() - began < args.budget
    while goes_on():
        ours, theirs = multiprocessing.Pipe(False)
        child = multiprocessing.Process(target=work, args=(engine, vocabulary, args, cases[len(results):], theirs))
        child.start()
        theirs.close()
        try:
            if not ours.poll(START_S):
                raise RuntimeError(f"{engine.__name__} has not read {vocabulary} in {START_S} s")
            ours.recv()
            while goes_on():
                if not ours.poll(args.limit):
                    results.append({"error": "over the limit"})
                    break
                results.append(ours.recv())
        except EOFError:
            results.append({"error": "the process ended"})
            if len(results) == 1:
                raise RuntimeError(f"{engine.__name__} cannot run here") from None
        finally:
            child.kill()
            child.join()
    return results


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def row(name, vocabulary, results, n_cases):
    good = [r for r in results if "error" not in r]
    refused = collections.Counter("over the limit" if r["error"] == "over the limit" else "refused" for r in results if "error" in r)
    compile_ms, masks_us = [r["compile_us"] / 1000 for r in good], [us for r in good for us in r["masks_us"]]
    slow = f" (+ {refused['over the limit']} over the limit)" if refused["over the limit"] else ""
    return (f"| {name} | {vocabulary} | {len(good)} of {len(results)}{'' if len(results) == n_cases else f' (budget; of {n_cases})'} | {sum(not r['taken'] for r in good)} "
            f"| {quantile(compile_ms, 0.5):.2f} / {quantile(compile_ms, 0.9):.1f} / {max(compile_ms):.1f}{slow} | {len(masks_us)} | {sum(masks_us) / len(masks_us):.1f} "
            f"| {quantile(masks_us, 0.5):.1f} / {quantile(masks_us, 0.9):.0f} / {quantile(masks_us, 0.99):.0f} / {quantile(masks_us, 0.999):.0f} | {max(masks_us):.0f} |")


ENGINES = {"quire": quire, "llguidance": llguidance, "xgrammar": xgrammar}


def versions():
    from importlib import metadata
    for name in ("llguidance", "xgrammar", "jsonschema"):
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield f"{name} missing"


def bench(args):
    cases = [(s["schema"], json.dumps(t["data"], separators=(",", ":"), ensure_ascii=False)) for s in real_schemas()
             for t in [t for t in s["tests"] if t["valid"] and t.get("in_order", in_order(s["schema"], t["data"]))][:1]]
    random.Random(args.seed).shuffle(cases)
    cases = cases[:args.schemas]
    print(f"{len(cases)} schemas, seed {args.seed}; {', '.join(versions())}; {time.strftime('%Y-%m-%d')}")
    print("| engine | vocabulary | compiled | valid refused | compile ms: p50 / p90 / max | masks | mask us: mean | p50 / p90 / p99 / p99.9 | max |\n|---|---|---|---|---|---|---|---|---|")
    for vocabulary in args.vocabularies.split(","):
        for name in args.engines.split(","):
            results = measured(ENGINES[name], vocabulary, args, cases)
            print(row(name, vocabulary, results, len(cases)), flush=True)
            for (schema, text), r in zip(cases, results):
                if args.verbose and ("error" in r or not r["taken"]):
                    print(f"  {r.get('error', 'refused: ' + text[:200])}  {json.dumps(schema)[:200]}")
    return 0


# ---- instances ----

FORMS = {"compact": {"separators": (",", ":"), "ensure_ascii": False}, "usual": {}, "indented": {"indent": 2, "ensure_ascii": False}}


def in_order(schema, value):
    """Whether members come as `properties` has them, where the schema says it plainly; others are taken to be in order."""
    if isinstance(schema, dict) and isinstance(value, dict):
        known = list(schema.get("properties", ()))
        places = [known.index(k) if k in known else len(known) for k in value]
        return places == sorted(places) and all(in_order(schema["properties"].get(k), v) for k, v in value.items() if k in known)
    if isinstance(schema, dict) and isinstance(value, list):
        return all(in_order(schema.get("items"), v) for v in value)
    return True


def instances(args):
    """Shares of real schemas that compile and of instances that are judged as they should be; the official suite's groups likewise."""
    q, bad = Quire(args.quire, args.vocabularies.split(",")[-1]), 0
    for name in ("answers/schemas.jsonl", "json-schema/real_schemas.jsonl", "json-schema/test_suite_2020-12.jsonl"):
        groups, seen, why = jsonl(name), collections.Counter(), collections.Counter()
        for g in groups:
            q.write({"schema": g["schema"]})
            compiled = q.read()
            seen["compiled"] += compiled["ok"]
            if not compiled["ok"]:
                why[re.sub(r"[0-9]+|'[^']*'", "_", compiled["error"])[:90]] += 1
                if args.verbose:
                    print(f"  refused: {compiled['error'][:160]} at {compiled.get('path')}: {json.dumps(g['schema'])[:120]}")
                continue
            for t in g["tests"]:
                ordered = t.get("in_order", in_order(g["schema"], t["data"]))
                for form, how in FORMS.items():
                    text = json.dumps(t["data"], **how)
                    q.write({"schema": g["schema"], "text": text})
                    r = q.read()
                    kind = ("valid" if ordered else "valid in another order") if t["valid"] else "invalid"
                    seen[kind] += 1
                    seen[f"{kind} accepted"] += r["accepted"]
                    if r["accepted"] != t["valid"] and kind != "valid in another order":
                        print(f"  {kind}, {'accepted' if r['accepted'] else 'refused at ' + str(r['at'])}, {form}: {text[:300]}  {json.dumps(g['schema'])[:600]}")
        bad += seen["invalid accepted"]
        shares = [f"{seen[k + ' accepted']} of {seen[k]} {k}" for k in ("valid", "valid in another order", "invalid")]
        print(f"{name}: {seen['compiled']} of {len(groups)} schemas compile; texts accepted: {', '.join(shares)}")
        for reason, n in why.most_common(args.shown):
            print(f"  {n} refused: {reason}")
    q.close()
    return 1 if bad else 0


# ---- walks ----


def validator_class():
    """jsonschema's validators, with numbers as decimals and patterns as ECMAScript has them."""
    import jsonschema
    # Patterns are ECMAScript's, also those of members' names.
    jsonschema._keywords.re = jsonschema._utils.re = types.SimpleNamespace(search=lambda pattern, text: re.search(ecma(pattern), text))

    def is_number(_, v):
        return isinstance(v, (int, decimal.Decimal)) and not isinstance(v, bool)

    def is_integer(_, v):
        return is_number(_, v) and v == int(v)

    def make(schema):
        cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        # Draft 4 alone says that 1.0 is no integer; everybody else, and quire in every draft, that it is one.
        checker = cls.TYPE_CHECKER.redefine_many({"number": is_number, "integer": is_integer})
        return jsonschema.validators.extend(cls, type_checker=checker)(schema, format_checker=cls.FORMAT_CHECKER)
    return make


def parse(text):
    """The value, and the members whose names an object has twice."""
    twice = []

    def members(pairs):
        twice.extend(k for k, n in collections.Counter(k for k, _ in pairs).items() if n > 1)
        return dict(pairs)

    def constant(word):
        raise ValueError(word)
    return json.loads(text, parse_float=decimal.Decimal, object_pairs_hook=members, parse_constant=constant), twice


def judge(validator, text):
    """"valid", "twice: ..." or what is wrong; "unknown: ..." where jsonschema itself fails."""
    try:
        value, twice = parse(text)
    except ValueError as e:
        return f"no JSON: {e}"
    try:
        wrong = next(validator.iter_errors(value), None)
    except Exception as e:  # pylint: disable=broad-except
        return f"unknown: {type(e).__name__}: {str(e)[:100]}"
    if wrong is not None:
        return f"{wrong.json_path}: {wrong.message[:300]} (by {'/'.join(map(str, wrong.absolute_schema_path))[:200]})"
    return f"twice: {twice[0]!r}" if twice else "valid"


def walks_of(args, vocabulary, schemas, seen, bad):
    q, n = Quire(args.quire, vocabulary), max(1, args.walks // (len(schemas) * len(args.vocabularies.split(","))))
    make, lines = validator_class(), [{"schema": s, "walk": args.seed + first, "n": min(args.batch, n - first)} for s in schemas for first in range(0, n, args.batch)]
    writer = threading.Thread(target=lambda: [q.write(line) for line in lines], daemon=True)
    writer.start()
    for line in lines:
        r = q.read()
        if not r["ok"]:
            seen["refused schema" if "path" in r and not r["error"].startswith("walk") else "no walk"] += 1
            if r["error"].startswith("walk"):
                bad.append((vocabulary, line, r["error"]))
            continue
        validator = make(json.loads(json.dumps(line["schema"]), parse_float=decimal.Decimal))
        for number, text in enumerate(r["texts"]):
            says = judge(validator, text)
            seen[says.split(":")[0] if says.startswith(("valid", "twice", "unknown")) else "NOT VALID"] += 1
            if not says.startswith(("valid", "unknown", "twice")):
                bad.append((vocabulary, {**line, "text": text, "number": number}, says))
            elif says != "valid" and args.verbose:
                print(says, json.dumps(line["schema"])[:200])
    q.close()


def walks(args):
    decimal.getcontext().prec = 3000  # of exponents of three digits, either way
    decimal.getcontext().Emax, decimal.getcontext().Emin = 99999, -99999
    schemas = [s["schema"] for s in real_schemas() + jsonl("answers/strict_schemas.jsonl")] + [g["schema"] for g in jsonl("json-schema/test_suite_2020-12.jsonl")]
    seen, bad, began = collections.Counter(), [], time.monotonic()
    for vocabulary in args.vocabularies.split(","):
        walks_of(args, vocabulary, schemas, seen, bad)
        print(f"{vocabulary}: {', '.join(f'{n} {what}' for what, n in sorted(seen.items()))}; {time.monotonic() - began:.0f} s", flush=True)
    with open(args.out, "w", encoding="utf-8") as f:
        for vocabulary, line, says in bad:
            f.write(json.dumps({"vocabulary": vocabulary, "says": says, **line}) + "\n")
    for vocabulary, line, says in bad[:args.shown]:
        print(f"{vocabulary}: {says}\n  {json.dumps(line)[:1000]}")
    print(f"seed {args.seed}: {len(bad)} of {sum(seen.values())} were not as they should be{f': {args.out}' if bad else ''}")
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", choices=("bench", "instances", "walks"))
    p.add_argument("--quire", default=os.path.join(ROOT, "build", "quire"))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--vocabularies", default="llama-3.2,llama-2")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--schemas", type=int, default=100)
    p.add_argument("--engines", default="quire,llguidance,xgrammar")
    p.add_argument("--limit", type=float, default=30, help="seconds for one schema")
    p.add_argument("--budget", type=float, default=300, help="seconds for an engine with a vocabulary")
    p.add_argument("--walks", type=int, default=100000)
    p.add_argument("--batch", type=int, default=20, help="walks of one line")
    p.add_argument("--shown", type=int, default=10)
    p.add_argument("--out", default="/tmp/quire-walks.jsonl", help="walks that are not valid")
    args = p.parse_args()
    # Nested values are as deep as a walk is long.
    sys.setrecursionlimit(100000)
    threading.stack_size(512 << 20)
    ended = []
    t = threading.Thread(target=lambda: ended.append({"bench": bench, "instances": instances, "walks": walks}[args.what](args)))
    t.start()
    t.join()
    return ended[0] if ended else 1


if __name__ == "__main__":
    sys.exit(main())
