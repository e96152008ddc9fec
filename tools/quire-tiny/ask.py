#!/usr/bin/env python3
"""Asks a served model the questions of corpus.py and counts right answers of each kind.

    ask.py QUIRE MODEL_DIR questions.jsonl [--show N]

starts QUIRE serve on a free loopback port, asks every question in a conversation of its own at temperature 0, and prints a line for each kind. An answer is
right when it holds the words that the question's line names and ended by itself. Python's standard library only.
"""
import argparse
import collections
import json
import subprocess
import sys
import urllib.request


def serve(program, model):
    """The server's process and its address, once it listens and is ready."""
    process = subprocess.Popen([program, "serve", "--model", model, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if line.startswith("ready"):
            return process, line.split()[1]
    raise SystemExit("%s serve --model %s did not start" % (program, model))


def answer(url, ask):
    body = json.dumps({"messages": [{"role": "user", "content": ask}], "temperature": 0, "max_tokens": 200}).encode()
    request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as f:
        choice = json.load(f)["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("quire")
    p.add_argument("model")
    p.add_argument("questions")
    p.add_argument("--show", type=int, default=3, help="wrong answers to show of each kind")
    a = p.parse_args()
    process, url = serve(a.quire, a.model)
    right, asked, wrong = collections.Counter(), collections.Counter(), collections.defaultdict(list)
    try:
        for line in open(a.questions, encoding="utf-8"):
            q = json.loads(line)
            text, reason = answer(url, q["ask"])
            good = reason == "stop" and all(w in text for w in q["holds"])
            asked[q["kind"]] += 1
            right[q["kind"]] += good
            if not good:
                wrong[q["kind"]].append("%r -> %r (%s)" % (q["ask"], text, reason))
    finally:
        process.terminate()
        process.wait()
    for kind in asked:
        print("%-12s %3d of %3d" % (kind, right[kind], asked[kind]))
        for line in wrong[kind][:a.show]:
            print("             " + line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
