#!/usr/bin/env python3
"""Answers with a form from the bundled model over HTTP: in the schema, and the same bytes alone, beside others, and streamed."""
import concurrent.futures
import json
import os
import re

from lib import ROOT, Server, main
from schema_valid import Judge, parse

BUNDLED = os.path.join(ROOT, 'models', 'quire-tiny')
PERSON = {'type': 'object', 'properties': {'name': {'type': 'string', 'minLength': 1, 'maxLength': 12}, 'age': {'type': 'integer', 'minimum': 0, 'maximum': 120},
                                           'tags': {'type': 'array', 'items': {'enum': ['a', 'b', 'ccc']}, 'minItems': 1, 'maxItems': 3}}, 'required': ['name', 'age', 'tags'],
          'additionalProperties': False}
TREE = {'type': 'object', 'properties': {'v': {'type': 'integer', 'maximum': 9, 'minimum': 0}, 'next': {'anyOf': [{'$ref': '#'}, {'type': 'null'}]}},
        'required': ['v', 'next'], 'additionalProperties': False}
TOOLS = [{'type': 'function', 'function': {'name': name, 'parameters': {'type': 'object', 'properties': {'city': {'type': 'string', 'maxLength': 8}}, 'required': ['city'],
                                                                       'additionalProperties': False}}} for name in ('weather', 'time')]
SEVEN = '(one|two) [0-9]{1,3}[.]'


def chat(**more):
    return '/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'Tell me something.'}], 'max_tokens': 200, **more}


def completion(**more):
    return '/v1/completions', {'prompt': 'Once', 'max_tokens': 200, **more}


def requests():
    """32 of them, each with a seed of its own."""
    kinds = [lambda s: chat(seed=s, response_format={'type': 'json_schema', 'json_schema': {'name': 'p', 'schema': PERSON, 'strict': True}}),
             lambda s: chat(seed=s, tools=TOOLS, tool_choice='required', temperature=0.7), lambda s: completion(seed=s, guided_regex=SEVEN), lambda s: chat(seed=s),
             lambda s: completion(seed=s, guided_json=TREE, temperature=0.5), lambda s: completion(seed=s, guided_choice=['left', 'right', 'up'], n=3),
             lambda s: chat(seed=s, tools=TOOLS), lambda s: chat(seed=s, response_format={'type': 'json_object'}, tools=TOOLS)]
    return [kinds[i % len(kinds)](i + 1) for i in range(32)]


def said(choice):
    message = choice.get('message') or {'text': choice['text']}
    calls = [(c['function']['name'], c['function']['arguments']) for c in message.get('tool_calls', [])]
    return message.get('text', message.get('content')), message.get('reasoning'), calls, choice['finish_reason']


def ask(s, request):
    status, body = s.post(*request)
    assert status == 200, (request, body)
    return [said(c) for c in body['choices']]


def ask_streamed(s, request):
    path, body = request
    texts, thoughts, calls, ends = {}, {}, {}, {}
    for event in s.stream(path, body):
        for c in event['choices']:
            i, d = c['index'], c.get('delta', c)
            texts[i] = texts.get(i, '') + (d.get('content') or d.get('text') or '')
            thoughts[i] = thoughts.get(i, '') + d.get('reasoning', '')
            for t in d.get('tool_calls', []):
                if 'id' in t:
                    calls.setdefault(i, []).append([t['function']['name'], ''])
                calls[i][t['index']][1] += t['function']['arguments']
            ends[i] = c['finish_reason'] or ends.get(i)
    return [((texts[i] or None) if calls.get(i) else texts[i], thoughts[i] or None, [tuple(c) for c in calls.get(i, [])], ends[i]) for i in sorted(texts)]


def check(request, answers):
    """What ends by itself is what was asked."""
    body = request[1]
    for text, _, calls, finish in answers:
        if finish == 'length':
            continue
        for name, arguments in calls:
            schema = TOOLS[0]['function']['parameters']
            assert name in ('weather', 'time') and Judge(schema).wrong(schema, parse(arguments)) is None, (name, arguments)
        schema = PERSON if body.get('response_format', {}).get('json_schema') else body.get('guided_json')
        if schema:
            assert Judge(schema).wrong(schema, parse(text)) is None, text
        if 'guided_regex' in body:
            assert re.fullmatch(SEVEN, text), text
        if 'guided_choice' in body:
            assert text in body['guided_choice'], text
        assert calls or body.get('tool_choice') != 'required', (text, finish)


def test_answers_have_their_form_and_the_same_bytes_alone_among_32_and_streamed():
    with Server(model=BUNDLED) as s:
        alone = [ask(s, r) for r in requests()]
        for r, a in zip(requests(), alone):
            check(r, a)
        whole = sum(finish != 'length' for a in alone for _, _, _, finish in a)
        print(f'   {whole} of {sum(map(len, alone))} answers ended by themselves')
        assert whole >= 20, alone
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            assert list(pool.map(lambda r: ask(s, r), requests())) == alone
            streamed = list(pool.map(lambda r: ask_streamed(s, r), requests()))
        for r, one, other in zip(requests(), alone, streamed):
            assert one == other, (r, one, other)


def test_log_probabilities_are_those_before_the_mask():
    with Server(model=BUNDLED) as s:
        free = completion(temperature=0, logprobs=5, max_tokens=1)
        first = s.post(*free)[1]['choices'][0]['logprobs']['top_logprobs'][0]
        forced = s.post(*completion(temperature=0, logprobs=5, max_tokens=1, guided_choice=['Zebra']))[1]['choices'][0]['logprobs']
        assert {k: v for k, v in forced['top_logprobs'][0].items() if k in first} == first, (first, forced)


if __name__ == '__main__':
    main(globals())
