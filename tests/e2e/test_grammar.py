#!/usr/bin/env python3
"""`quire grammar`: what schemas and grammars accept, on real schemas and by hand."""
import itertools
import json
import os
import subprocess
import tempfile

from lib import DATA, QUIRE, ROOT, environment, jsonl, main, need_data, run

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
SMALL = os.path.join(DATA, 'tokenizers', 'gpt2')
COMPACT = {'separators': (',', ':')}
FORMS = ({}, COMPACT, {'ensure_ascii': False}, {'ensure_ascii': False, **COMPACT})


def grammar(lines, *flags, model=TINY):
    """The answers to lines: texts as they are, other values as JSON."""
    text = '\n'.join(line if isinstance(line, str) else json.dumps(line) for line in lines) + '\n'
    rc, out, err = run('grammar', '--model', model, *flags, stdin=text, timeout=600)
    assert rc == 0, f'exit {rc}: {err[-800:]}'
    got = [json.loads(line) for line in out.split('\n') if line]
    assert len(got) == len(lines), f'{len(got)} answers to {len(lines)} lines'
    return got


def real_schemas():
    """Cases of both files: (id, schema, tests)."""
    files = (os.path.join(DATA, 'answers', 'schemas.jsonl'), os.path.join(DATA, 'json-schema', 'real_schemas.jsonl'))
    for path in files:
        need_data(path)
    return [(case['id'], case['schema'], case['tests']) for path in files for case in jsonl(path)]


def test_nine_of_ten_real_schemas_compile_and_a_refusal_names_a_path():
    cases = real_schemas()
    got = grammar([{'schema': schema} for _, schema, _ in cases], model=SMALL)
    refused = [(name, a) for (name, _, _), a in zip(cases, got) if not a['ok']]
    print(f'{len(cases) - len(refused)} of {len(cases)} real schemas compile')
    assert len(refused) <= 0.1 * len(cases), [(name, a['error'], a['path']) for name, a in refused][:20]
    assert all(a['path'].startswith('$') and a['error'] for _, a in refused), refused


def test_valid_instances_are_taken_in_every_form_and_invalid_ones_never():
    texts = [(name, schema, t, json.dumps(t['data'], **form)) for name, schema, tests in real_schemas() for t in tests
             for form in (FORMS if t['valid'] else FORMS[1:2]) if not t['valid'] or t.get('in_order')]
    got = grammar([{'schema': schema, 'text': text} for _, schema, _, text in texts], model=SMALL)
    judged = [(name, t, text, a) for (name, _, t, text), a in zip(texts, got) if a['ok']]
    valid = [(name, text, a) for name, t, text, a in judged if t['valid']]
    refused = [(name, text[:a['at']][-60:], text[a['at']:][:20]) for name, text, a in valid if not a['accepted']]
    taken = [(name, text[:80]) for name, t, text, a in judged if not t['valid'] and a['accepted']]
    print(f'{len(refused)} of {len(valid)} valid texts refused; {len(taken)} of {len(judged) - len(valid)} invalid ones taken')
    assert len(valid) > 800 and len(refused) <= 0.01 * len(valid), refused[:10]
    assert not taken, taken[:10]


def orders(value):
    """The value with its members in every order, up to a bound."""
    if isinstance(value, list):
        return [list(items) for items in itertools.islice(itertools.product(*map(orders, value)), 50)]
    if not isinstance(value, dict):
        return [value]
    return [dict(zip(keys, values)) for keys in itertools.islice(itertools.permutations(value), 24)
            for values in itertools.islice(itertools.product(*(orders(value[k]) for k in keys)), 24)]


def test_no_group_of_the_official_suite_that_is_accepted_is_wrong():
    path = os.path.join(DATA, 'json-schema', 'test_suite_2020-12.jsonl')
    need_data(path)
    texts = [(number, group, t, json.dumps(data, **COMPACT)) for number, group in enumerate(jsonl(path)) for t in group['tests'] for data in orders(t['data'])]
    got = grammar([{'schema': group['schema'], 'text': text} for _, group, _, text in texts])
    compiled, accepted = set(), {}
    for (number, group, t, text), a in zip(texts, got):
        if a['ok']:
            compiled.add(number)
            case = (number, group['file'], group['description'], t['description'], t['valid'])
            accepted[case] = accepted.get(case, False) or a['accepted']
    wrong = [case for case, taken in accepted.items() if taken != case[4]]
    print(f'{len(compiled)} groups compile; {len(wrong)} of their {len(accepted)} cases are wrong')
    assert len(compiled) > 80 and not wrong, wrong[:10]


def test_every_token_of_a_valid_instance_is_in_its_mask():
    for name in ('llama-3.2', 'llama-2'):
        model = os.path.join(DATA, 'tokenizers', name)
        need_data(model)
        texts = [(schema, json.dumps(t['data'], **form)) for _, schema, tests in real_schemas()[::4] for t in tests for form in FORMS[:2]
                 if t['valid'] and t.get('in_order')]
        got = grammar([{'schema': schema, 'text': text} for schema, text in texts], '--masks', model=model)
        taken = [(text, a) for (_, text), a in zip(texts, got) if a['ok'] and a['accepted']]
        wrong = [(text[:80], a) for text, a in taken if not a['tokens_ok']]
        assert len(taken) > 50 and not wrong, (name, wrong[:5])
        assert all(0 < a['mask_us']['p50'] <= a['mask_us']['p99'] <= a['mask_us']['max'] and a['compile_us'] > 0 for _, a in taken), name


# (grammar, text, accepted, at)
TABLE = (
    ({'schema': True}, '[1, {"a": null}]', True, 16),
    ({'schema': {'type': 'integer'}}, '12', True, 2),
    ({'schema': {'type': 'integer'}}, '1x', False, 1),
    ({'schema': {'type': 'integer'}}, '', False, 0),
    ({'schema': {'type': 'object', 'properties': {'a': {'type': 'string'}}, 'required': ['a']}}, '{"a": "é', False, 9),
    ({'schema': {'type': 'string', 'maxLength': 2}}, '"ééé"', False, 5),
    ({'regex': '[a-c]+x?'}, 'abcx', True, 4),
    ({'regex': '[a-c]+x?'}, 'abdx', False, 2),
    ({'regex': '(a|b)*c{2}'}, 'abc', False, 3),
    ({'choice': ['yes', 'no', 'né"']}, 'né"', True, 4),
    ({'choice': ['yes', 'no']}, 'ye', False, 2),
    ({'choice': ['yes', 'no']}, 'nope', False, 2),
    ({'gbnf': 'root ::= "(" root ")" | [0-9]+'}, '((7))', True, 5),
    ({'gbnf': 'root ::= "(" root ")" | [0-9]+'}, '((7)))', False, 5),
    ({'gbnf': 'root ::= "(" root ")" | [0-9]+'}, '((7', False, 3),
    ({'lark': 'start: "a" item+\nitem: /[0-9]/ ";"\n'}, 'a1;2;', True, 5),
    ({'lark': 'start: "a" item+\nitem: /[0-9]/ ";"\n'}, 'a;', False, 1),
)


def test_every_language_says_how_far_a_text_can_be_read():
    for flags in ((), ('--masks',)):
        got = grammar([{**g, 'text': text} for g, text, _, _ in TABLE], *flags)
        for (g, text, accepted, at), a in zip(TABLE, got):
            assert a['ok'] and (a['accepted'], a['at']) == (accepted, at), (g, text, a)
            assert not flags or a['tokens_ok'] or not accepted, (g, text, a)
    without = grammar([g for g, _, _, _ in TABLE])
    assert all(a == {'ok': True} for a in without), without
    nothing = grammar([{'schema': False, 'text': 'null'}])[0]
    assert not nothing.get('accepted'), nothing


def test_what_is_wrong_is_refused_in_its_place_and_nothing_ends_the_command():
    lines = ['', 'no json', '{"schema": {"type": "integer"}, "text": "1"', '[1]', '{}', {'schema': {'type': 'integer'}, 'regex': 'a'}, {'regex': 5},
             {'choice': 'yes'}, {'choice': []}, {'regex': '(a'}, {'regex': 'a(?=b)c'}, {'gbnf': 'root ::= missing'}, {'lark': 'start: missing'}, {'text': 'a'},
             {'schema': {'type': 'integer'}, 'text': 1}, {'schema': 5}, {'schema': {'properties': {'a': {'$ref': '#/$defs/b'}}}},
             {'schema': {'properties': {'a': {'$ref': 'https://example.com/s'}}}}, '[' * 100000, '{"schema":' * 500]
    got = grammar(lines + [{'schema': {'type': 'integer'}, 'text': '1'}])
    assert got[-1] == {'ok': True, 'accepted': True, 'at': 1}, got[-1]
    for line, a in zip(lines, got):
        assert a['ok'] is False and a['error'], (str(line)[:80], a)
    assert all('path' not in a for a in got[:3] + got[-3:-1]), got
    assert all(a['path'].startswith('$') for a in got[3:-3]), got
    assert got[16]['path'].startswith('$.properties.a') and got[17]['path'].startswith('$.properties.a'), got[16:18]


def test_strict_schemas_are_checked_by_the_rules_for_them():
    path = os.path.join(DATA, 'answers', 'strict_schemas.jsonl')
    need_data(path)
    cases = jsonl(path)
    strict = grammar([{'schema': case['schema']} for case in cases], '--strict')
    loose = grammar([{'schema': case['schema']} for case in cases])
    for case, s, l in zip(cases, strict, loose):
        assert s['ok'] == case['strict_ok'] or (s['ok'] and case.get('may_accept')), (case['name'], s)
        assert not (case.get('must_refuse') and l['ok']), (case['name'], l)


def test_an_answer_comes_before_the_next_line_is_written():
    p = subprocess.Popen([QUIRE, 'grammar', TINY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(None))
    for text, accepted in (('7', True), ('x', False)):
        p.stdin.write((json.dumps({'schema': {'type': 'integer'}, 'text': text}) + '\n').encode())
        p.stdin.flush()
        assert json.loads(p.stdout.readline())['accepted'] is accepted
    p.stdin.close()
    assert p.wait(60) == 0
    p.stdout.close()


def test_lines_of_hundreds_of_kilobytes_are_read():
    words = [f'word{i:05}' for i in range(20000)]
    got = grammar([{'choice': words[:2000], 'text': words[1999]}, {'schema': {'type': 'array', 'items': {'type': 'string'}}, 'text': json.dumps(words)},
                   {'schema': {'type': 'string', 'description': 'x' * 500000}, 'text': '"a"'}])
    assert [a.get('accepted') for a in got] == [True, True, True], got


SCHEMA = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 8}, 'n': {'type': 'integer', 'minimum': 0, 'maximum': 999},
                                           'kind': {'enum': ['a', 'b']}}, 'required': ['name', 'n', 'kind'], 'additionalProperties': False}
# (flag, what is in its file or stands behind it, the line for quire grammar)
DEMANDS = (('--schema', json.dumps(SCHEMA, indent=1), {'schema': SCHEMA}),
           ('--regex', '(yes|no), [0-9]{3}', {'regex': '(yes|no), [0-9]{3}'}),
           ('--grammar', 'root ::= "<" [a-z]{1,5} ">" root?\n', {'gbnf': 'root ::= "<" [a-z]{1,5} ">" root?\n'}),
           ('--grammar', 'start: "a" /[0-9]{2}/ ";"\n', {'lark': 'start: "a" /[0-9]{2}/ ";"\n'}))


def put(path, text):
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    return path


def test_generated_answers_fit_and_only_the_length_limit_cuts_them():
    prompts = [f'Tell me about number {i}.' for i in range(6)]
    for flag, text, line in DEMANDS:
        with tempfile.TemporaryDirectory() as d:
            given = text if flag == '--regex' else put(os.path.join(d, 'demand'), text)
            rc, out, err = run('generate', TINY, '--prompts', '-', flag, given, '--json', '-n', '200', '--temperature', '1', '--seed', '3',
                               stdin='\n'.join(map(json.dumps, prompts)))
        assert rc == 0, err
        answers = [json.loads(a) for a in out.split('\n') if a]
        assert len(answers) == len(prompts)
        for answer, a in zip(answers, grammar([{**line, 'text': answer['text']} for answer in answers])):
            assert list(answer) == ['prompt_ids', 'ids', 'text', 'finish_reason'], answer
            assert a['accepted'] or (answer['finish_reason'] == 'length' and a['at'] == len(answer['text'].encode())), (flag, answer, a)
        assert flag == '--grammar' or any(answer['finish_reason'] == 'stop' for answer in answers), (flag, answers)


def test_what_generate_cannot_enforce_is_named_with_its_file_and_path():
    with tempfile.TemporaryDirectory() as d:
        wrong = put(os.path.join(d, 'wrong.json'), '{"properties": {"a": {"$ref": "https://example.com/s"}}}')
        torn = put(os.path.join(d, 'torn.json'), '{"type": ')
        rules = put(os.path.join(d, 'rules.gbnf'), 'root ::= missing')
        for flags, status, says in ((('--schema', wrong), 4, f'{wrong}: $.properties.a'), (('--schema', torn), 4, torn), (('--grammar', rules), 4, rules),
                                    (('--schema', os.path.join(d, 'none')), 4, 'none'), (('--regex', '(a'), 2, '--regex: '),
                                    (('--schema', wrong, '--regex', 'a'), 2, '--schema and --regex')):
            rc, out, err = run('generate', TINY, 'x', *flags)
            assert (rc, out) == (status, '') and says in err, (flags, rc, err)


if __name__ == '__main__':
    main(globals())
