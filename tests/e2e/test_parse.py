#!/usr/bin/env python3
"""quire parse on the conformance data's answers of models: what is read by derivation from templates and by families' names, and that no cut of a text changes it."""
import collections
import os
import sys

from lib import DATA, jsonl, main, need_data, run, run_lines

ANSWERS = os.path.join(DATA, 'answers')
DERIVED, REGULAR, REASONING = 0.95, 0.92, 0.97  # of the cases, at least


def cases(name):
    need_data(ANSWERS)
    return jsonl(os.path.join(ANSWERS, name))


def scorer():
    need_data(ANSWERS)
    sys.path.insert(0, ANSWERS)
    import score
    return score


def by_template():
    """[(arguments of the command, cases)]"""
    groups = collections.defaultdict(list)
    for c in cases('tool_calls.jsonl'):
        groups[(c.get('options') or {}).get('template')].append(c)
    return [(['--template', os.path.join(ANSWERS, 'templates', t)] if t else [], g) for t, g in sorted(groups.items(), key=str)]


def test_calls_are_read_by_derivation_and_by_name():
    score, right, wrong = scorer(), collections.Counter(), []
    n = collections.Counter()
    for args, group in by_template():
        for c, got in zip(group, run_lines('parse', *args, lines=group)):
            kinds = ['lenient'] if c.get('lenient') else ['regular', 'derived'] if args else ['regular']
            why = score.judge(c, got)
            for k in kinds:
                n[k] += 1
                right[k] += why is None
            if why and kinds[0] == 'regular':
                wrong.append((c['id'], c['family'], why))
    print('   ' + ', '.join(f'{k} {right[k]} of {n[k]}' for k in sorted(n)), wrong)
    assert right['derived'] >= DERIVED * n['derived'] > 0, wrong
    assert right['regular'] >= REGULAR * n['regular'] > 0, wrong


def test_reasoning_is_taken_apart_by_its_tags_and_by_name():
    score, lines = scorer(), cases('reasoning.jsonl')
    got = run_lines('parse', lines=lines)
    wrong = [c['name'] for c, g in zip(lines, got) if score.judge(c, g)]
    print(f'   {len(lines) - len(wrong)} of {len(lines)}')
    assert len(lines) - len(wrong) >= REASONING * len(lines) > 0, wrong


def test_no_cut_of_a_text_changes_what_is_read():
    groups = by_template() + [([], cases('reasoning.jsonl'))]
    n = 0
    for args, group in groups:
        whole = run_lines('parse', *args, lines=[{k: v for k, v in c.items() if k != 'chunks'} for c in group])
        cut, want = [], []
        for c, w in zip(group, whole):
            text = c['text']
            for chunks in [list(text)] + [[text[:i], text[i:]] for i in range(1, len(text))]:
                cut.append({**c, 'chunks': chunks})
                want.append(w)
        n += len(cut)
        for c, g, w in zip(cut, run_lines('parse', *args, lines=cut), want):
            assert g == w, (c, g, w)
    print(f'   {n} cuts')


def test_families_are_listed_and_an_unknown_one_is_an_error_of_its_line():
    rc, out, err = run('parse', '--family', 'help')
    names = out.split()
    assert rc == 0 and err == '' and {'hermes', 'gpt-oss', 'json'} <= set(names), (rc, out, err)
    got = run_lines('parse', lines=[{'text': 'a', 'family': 'no such'}] + [{'text': 'hello', 'family': f} for f in names])
    assert 'no such' in got[0]['error'], got[0]
    for family, g in zip(names, got[1:]):
        assert g == {'content': 'hello', 'reasoning': '', 'calls': []}, (family, g)
    assert run('parse', '--family', 'no such')[0] == 2


def test_a_marker_that_the_end_cuts_off_behind_a_call_is_no_content():
    text = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    for n in range(len('\n</tool_call>') + 1):
        got, = run_lines('parse', '--family', 'hermes', lines=[{'text': text[:len(text) - n]}])
        assert got['content'].strip() == '' and [c['name'] for c in got['calls']] == ['f'] and '"a": 1' in got['calls'][0]['arguments'], (n, got)


def test_a_line_of_tags_has_reasoning_alone():
    lines = [{'text': 'a</x> b <tool_call>', 'tags': ['<x>', '</x>'], 'starts_inside': True}, {'text': '<x>a</x>\n\nb', 'tags': ['<x>', '</x>']}]
    assert run_lines('parse', lines=lines) == [{'content': 'b <tool_call>', 'reasoning': 'a', 'calls': []}, {'content': 'b', 'reasoning': 'a', 'calls': []}]


if __name__ == '__main__':
    main(globals())
