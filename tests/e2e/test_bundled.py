#!/usr/bin/env python3
"""The bundled model: what a newcomer meets. Its size, its files, and that it answers each kind of question and ends its turns on every path."""
import json
import os
import subprocess
import sys
import tempfile

from lib import ROOT, SLOW, Server, Skip, main, run

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
CORPUS = os.path.join(ROOT, 'tools', 'quire-tiny', 'corpus.py')


def ask(server, *texts):
    """The last answer of a conversation in which the user says these texts."""
    messages = []
    for text in texts:
        messages.append({'role': 'user', 'content': text})
        status, r = server.post('/v1/chat/completions', {'messages': messages, 'temperature': 0, 'max_tokens': 200})
        assert status == 200, r
        messages.append(r['choices'][0]['message'])
        assert r['choices'][0]['finish_reason'] == 'stop', (texts, r['choices'][0])
    return messages[-1]['content']


def test_it_takes_at_most_8_mb_on_disk():
    assert sum(os.path.getsize(os.path.join(TINY, f)) for f in os.listdir(TINY)) <= 8_000_000


def test_it_answers_each_kind_of_question_and_ends_its_turns():
    with Server(model=TINY) as s:
        assert ask(s, 'Hello!').startswith('Hello!')
        assert ask(s, 'What is quire?').startswith('quire is')
        assert './dev run' in ask(s, 'Hi!', 'How do I start quire?')
        story = ask(s, 'Tell me a story about a fox.')
        assert ' fox ' in story and story.endswith('The end.'), story
        assert 'not know' in ask(s, 'What is the capital of France?')


def test_it_answers_most_of_the_questions_that_it_was_never_asked_in_training():
    """Ten of each kind here; all of them: tools/quire-tiny/ask.py, whose counts are in models/quire-tiny/README.md."""
    if SLOW > 1:
        raise Skip('how good a model is does not depend on the build; the test above asks one of each kind')
    right = {}
    with tempfile.TemporaryDirectory() as d, Server(model=TINY) as s:
        subprocess.run([sys.executable, CORPUS, d, '--conversations', '1'], check=True)
        with open(os.path.join(d, 'questions.jsonl'), encoding='utf-8') as f:
            questions = [json.loads(line) for line in f]
        for kind in {q['kind'] for q in questions}:
            some = [q for q in questions if q['kind'] == kind][::10]
            right[kind] = sum(all(w in ask(s, q['ask']) for w in q['holds']) for q in some)
            assert len(some) == 10
    assert all(n >= 8 for n in right.values()), right


def test_the_readme_s_filter_is_answered_and_a_long_input_is_told_what_to_do():
    with Server(model=TINY) as s:
        url = f'http://127.0.0.1:{s.port}'
        question = 'What is 12 + 30?'
        with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
            assert f'echo "{question}" | build/quire chat\n' in f.read()
        rc, out, err = run('chat', '--url', url, '--temperature', '0', stdin=question + '\n')
        assert rc == 0 and out == '12 + 30 = 42.\n', (out, err)
        rc, out, err = run('chat', '--url', url, 'write a commit message', stdin='+ a line of a diff\n' * 400)
        assert rc == 1 and 'the input is too long for this server, by ' in err and '--max-len' in err, err


def test_check_and_plan_understand_it():
    for command, says in (('check', 'LlamaForCausalLM'), ('plan', 'weights')):
        rc, out, err = run(command, '--model', TINY)
        assert rc == 0 and says in out, (command, out, err)


if __name__ == '__main__':
    main(globals())
