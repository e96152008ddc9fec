#!/usr/bin/env python3
"""Texts that `quire grammar` draws from masks at random (cli/grammar_walk.h): each is JSON, fits its schema by another judge (schema_valid.py), and is accepted when it is read again.

tools/check_answers.py walks asks for a hundred thousand, judged by the jsonschema package.
"""
import json
import os
import sys

from lib import DATA, SLOW, jsonl, main, need_data, run_lines
from schema_valid import Judge, Unknown, parse

sys.setrecursionlimit(20000)
WALKS = 2 if SLOW == 1 else 1  # of each schema, for each vocabulary: a thousand in a release build
VOCABULARIES = ('llama-2', 'qwen2.5')


def schemas():
    real = os.path.join(DATA, 'answers', 'schemas.jsonl')
    need_data(real)
    return jsonl(real) + jsonl(os.path.join(DATA, 'json-schema', 'real_schemas.jsonl'))


def grammar(vocabulary, lines):
    return run_lines('grammar', '--model', os.path.join(DATA, 'tokenizers', vocabulary), lines=lines)


def exact(value):
    return parse(json.dumps(value))


def judged(schema, text):
    """The path of what is wrong, or None; also where the judge does not know."""
    try:
        return Judge(schema).wrong(schema, parse(text))
    except Unknown:
        return None


def test_the_judge_agrees_with_the_instances_of_the_data_set():
    n = unknown = 0
    for s in [*schemas(), *jsonl(os.path.join(DATA, 'json-schema', 'test_suite_2020-12.jsonl'))]:
        for t in s['tests']:
            try:
                judge = Judge(exact(s['schema']))
                wrong = judge.wrong(judge.root, exact(t['data']))
            except Unknown:
                unknown += 1
                continue
            n += 1
            # What is wrong with some invalid ones is a format.
            assert (wrong is None) == t['valid'] or wrong is None and 'format' in json.dumps(s['schema']), (wrong, s['schema'], t)
    assert n > 1400 and unknown < n // 10, (n, unknown)


def test_every_text_of_a_random_walk_fits_its_schema_and_is_accepted_again():
    for vocabulary in VOCABULARIES:
        lines = [{'schema': s['schema'], 'walk': seed, 'n': WALKS} for seed, s in enumerate(schemas())]
        answers = [(line, a) for line, a in zip(lines, grammar(vocabulary, lines), strict=True) if a['ok'] or 'walk' in a['error']]
        failed = [(line, a['error']) for line, a in answers if not a['ok']]
        assert not failed, failed[:3]
        again, n = [], 0
        for line, a in answers:
            for text in a['texts']:
                wrong = judged(exact(line['schema']), text)
                assert wrong is None, (wrong, text, line)
                again.append({'schema': line['schema'], 'text': text})
                n += 1
        refused = [line for line, a in zip(again, grammar(vocabulary, again), strict=True) if not (a['ok'] and a['accepted'])]
        assert not refused, (len(refused), refused[0])
        assert n > 200 * WALKS, n


if __name__ == '__main__':
    main(globals())
