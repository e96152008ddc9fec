#!/usr/bin/env python3
"""Guessed tokens with a real model: the bytes of answers are those without guesses, and there are fewer steps where a text repeats."""
import json
import os

from lib import ROOT, Server, main, run

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
SONG = 'the cat sat on the mat and the dog sat on the log. '


def prompts():
    """Prompts whose answers repeat something, and one whose answer does not."""
    yield {'prompt': SONG * 6 + 'the cat sat'}
    yield {'prompt_ids': [100, 200, 300, 400, 500, 600] * 20}
    yield {'prompt': 'Once upon a time'}


def answers(*flags):
    lines = ''.join(json.dumps(p) + '\n' for p in prompts())
    rc, out, err = run('generate', TINY, '--prompts', '-', '--json', '--stats', '-n', '120', '--ignore-eos', *flags, stdin=lines)
    assert rc == 0, err
    line = next(line for line in err.splitlines() if 'guesses right' in line)
    right, of = line.split('; ')[1].split(' guesses')[0].split(' of ')
    return out, int(right), int(of)


def test_answers_with_guesses_have_the_bytes_of_those_without():
    for sampling, drafts in (((), ('1', '32')), (('--temperature', '0.8', '--seed', '5'), ('16',)),
                             (('--repetition-penalty', '1.2', '--temperature', '1', '--top-k', '20', '--seed', '9'), ('8',))):
        plain, right, of = answers('--speculate', 'off', *sampling)
        assert (right, of) == (0, 0)
        for n in drafts:
            out, right, of = answers('--draft-tokens', n, *sampling)
            print(f'   {" ".join(sampling) or "greedy"}, at most {n} guesses: {right} of {of} right')
            assert out == plain, (sampling, n)
            assert of >= right and (of > 0 or sampling), (sampling, n, right, of)


def figures(s):
    """name: value of /metrics, without labels."""
    status, text = s.get('/metrics')
    assert status == 200
    return {line.split('{')[0].split(' ')[0]: float(line.rsplit(' ', 1)[1]) for line in text.splitlines() if not line.startswith('#')}


def test_a_client_that_predicts_the_answer_has_it_in_a_fraction_of_the_steps():
    with Server('--max-running', '4', model=TINY) as s:
        body = {'prompt': 'Once upon a time', 'max_tokens': 120, 'temperature': 0, 'return_token_ids': True, 'cache_salt': 'a'}
        status, plain = s.post('/v1/completions', body)
        assert status == 200, plain
        before = figures(s)
        text, n = plain['choices'][0]['text'], plain['usage']['completion_tokens']
        status, r = s.post('/v1/completions', {**body, 'cache_salt': 'b', 'prediction': {'type': 'content', 'content': text}, 'timings': True})
        after = figures(s)
        assert status == 200 and r['choices'] == plain['choices'], r
        details, steps = r['usage']['completion_tokens_details'], after['vllm:iteration_tokens_total_count'] - before['vllm:iteration_tokens_total_count']
        accepted = details['accepted_prediction_tokens']
        print(f'   {n} tokens in {steps:.0f} steps, {accepted} guesses right, {details["rejected_prediction_tokens"]} wrong')
        assert n > 50 and accepted > 0.3 * n and steps < 0.7 * n, (details, steps)  # how many is a matter of time, which a busy machine has its own of
        assert accepted == r['timings']['draft_n_accepted'] == after['vllm:spec_decode_num_accepted_tokens_total'] - before['vllm:spec_decode_num_accepted_tokens_total']
        assert r['timings']['draft_n'] == accepted + details['rejected_prediction_tokens']


def told(s, path, body):
    """Choices of an answer, whole and as a stream: its text, without what was counted."""
    status, r = s.post(path, body)
    assert status == 200, r
    chunks = sorted((e['choices'] for e in s.stream(path, body) if e['choices']), key=lambda c: c[0]['index'])  # choices overtake each other
    return json.dumps(r['choices']), json.dumps(chunks), r


def test_predicted_answers_over_http_say_what_others_say_in_every_byte():
    asks = [{'logprobs': 3}, {'n': 3, 'temperature': 0.9, 'seed': 4}, {'stop': ['friend', ' was '], 'include_stop_str_in_output': True}, {'min_tokens': 40, 'logprobs': 0},
            {'temperature': 0.7, 'seed': 1, 'presence_penalty': 1.5, 'frequency_penalty': 0.5, 'return_token_ids': True}, {'regex': '[a-z ]{10,60}[.]'}]
    with Server('--speculate', 'off', model=TINY) as off, Server(model=TINY) as auto:
        for extra in asks:
            body = {'prompt': 'Once upon a time', 'max_tokens': 90, 'temperature': 0, **extra}
            whole, chunks, r = told(off, '/v1/completions', body)
            text = r['choices'][0]['text']
            for prediction in (text, text[:30] + ' and ' + text[60:], SONG * 4):
                again = told(auto, '/v1/completions', {**body, 'prediction': {'type': 'content', 'content': prediction}})
                assert again[:2] == (whole, chunks), (extra, prediction)


def test_what_was_said_is_guessed_for_the_same_salt_only():
    with Server(model=TINY) as s:
        body = {'prompt': 'Once upon a time', 'max_tokens': 120, 'temperature': 0.9, 'seed': 7}
        details, said = [], set()
        for salt in ('a', 'a', 'b'):
            status, r = s.post('/v1/completions', {**body, 'cache_salt': salt})
            assert status == 200, r
            details.append(r['usage']['completion_tokens_details']['accepted_prediction_tokens'])
            said.add(r['choices'][0]['text'])
        n = r['usage']['completion_tokens']
        assert len(said) == 1, said
        assert n > 50 and details[1] > 0.3 * n > details[2], (n, details)


def test_settings_that_are_none_are_refused_by_name():
    for flags, words in ((('--draft-tokens', '0'), '1'), (('--draft-tokens', '33'), '32'), (('--speculate', 'maybe'), 'auto')):
        for command in (('generate', TINY, 'x'), ('serve', TINY, '--port', '0')):
            rc, _, err = run(*command, *flags)
            assert rc == 2 and flags[0] in err and words in err, err


if __name__ == '__main__':
    main(globals())
