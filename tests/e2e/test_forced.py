#!/usr/bin/env python3
"""Answers that a grammar, a tool call or a budget of thinking decides in part: with guesses the bytes of those without, in fewer steps."""
import os

from lib import ROOT, Server, main

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
STEPS = 'vllm:iteration_tokens_total_count'
PERSON = {'type': 'object', 'required': ['first_name', 'last_name', 'age', 'interests'], 'additionalProperties': False, 'properties': {
    'first_name': {'type': 'string', 'maxLength': 12}, 'last_name': {'type': 'string', 'maxLength': 12}, 'age': {'type': 'integer', 'minimum': 0, 'maximum': 120},
    'interests': {'type': 'array', 'minItems': 2, 'maxItems': 3, 'items': {'enum': ['swimming in the sea', 'mountains', 'swimming pools']}}}}
TOOL = {'type': 'function', 'function': {'name': 'look_up_a_person', 'description': 'finds a person', 'parameters': PERSON}}


def requests():
    schema = {'response_format': {'type': 'json_schema', 'json_schema': {'name': 'person', 'schema': PERSON, 'strict': True}}}
    for i, sampling in enumerate(({'temperature': 0}, {'temperature': 1.1, 'seed': 3, 'n': 3}, {'temperature': 0.9, 'seed': 4, 'presence_penalty': 0.7})):
        yield {**schema, **sampling}
        yield {'structured_outputs': {'regex': r'Call \+49 [0-9]{3,6} between (nine|twelve) and five o.clock, please\.'}, **sampling}
        yield {'tools': [TOOL], 'tool_choice': 'required', **sampling}
        yield {'tools': [TOOL], 'tool_choice': {'type': 'function', 'function': {'name': 'look_up_a_person'}}, 'max_tokens': 40 + i, **sampling}
        yield {**schema, **sampling, 'stop': ['age']}
        yield {**schema, **sampling, 'logprobs': True, 'top_logprobs': 2}


def said(choice):
    """A choice without what is made anew for each answer."""
    for call in choice['message'].get('tool_calls') or []:
        del call['id']
    return choice


def answers(*flags):
    """Choices and usage of every request, and the steps that they took."""
    with Server('--max-running', '4', *flags, model=TINY) as s:
        got = []
        for r in requests():
            status, a = s.post('/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'Who is it?'}], 'max_tokens': 100, **r})
            assert status == 200, a
            usage = {k: a['usage'][k] for k in ('prompt_tokens', 'completion_tokens')}
            got.append(([said(c) for c in a['choices']], usage))
        status, text = s.get('/metrics')
        steps = [float(line.rsplit(' ', 1)[1]) for line in text.splitlines() if line.startswith(STEPS)]
        return got, steps[0]


def test_answers_are_the_same_with_guesses_and_without_and_take_fewer_steps():
    plain, steps_off = answers('--speculate', 'off')
    guessed, steps_on = answers()
    n = sum(usage['completion_tokens'] for _, usage in plain)
    print(f'   {n} tokens: {steps_off:.0f} steps without guesses, {steps_on:.0f} with')
    for a, b, r in zip(plain, guessed, requests()):
        assert a == b, (r, a, b)
    assert steps_on < steps_off


if __name__ == '__main__':
    main(globals())
