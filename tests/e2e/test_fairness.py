"""test_fairness.py - keys with weights on a real engine: what each was served, by the order of answers in the access log, against the bound of scheduler/fair.h."""
import json
import os
import signal
import socket
import tempfile

import lib

MODEL = os.path.join(lib.ROOT, 'models', 'quire-tiny')
RUNNING, PROMPT, ANSWER = 2, 12, 12


def ask(port, key, user, number):
    """A connection that has sent a request. Its id, which the log has, begins with the user's name; in the cache there is nothing to find for it."""
    prompt = [3 + (number * 7919 + k * k) % 200 for k in range(PROMPT)]
    body = json.dumps({'prompt': prompt, 'max_tokens': ANSWER, 'ignore_eos': True, 'user': user, 'cache_salt': str(number)})
    head = f'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n'
    c = socket.create_connection(('127.0.0.1', port), timeout=60 * lib.SLOW)
    c.sendall(f'{head}X-Request-Id: {user}-{number}\r\nContent-Length: {len(body)}\r\n\r\n{body}'.encode())
    return c


def answered(clients, keys='', running=RUNNING):
    """The answers of clients, (key, user) each, in the order in which the server gave them: what a client saw first says little. All ask while the server
    stands still, so that they wait together when the first one is served."""
    with tempfile.TemporaryDirectory() as folder:
        log, file = os.path.join(folder, 'log'), os.path.join(folder, 'keys')
        with open(file, 'w', encoding='utf-8') as f:
            f.write(keys)
        flags = ['--api-key-file', file] if keys else []
        with lib.Server('--max-running', str(running), '--access-log', log, *flags, model=MODEL) as server:
            server.process.send_signal(signal.SIGSTOP)
            try:
                asked = [ask(server.port, key, user, i) for i, (key, user) in enumerate(clients)]
            finally:
                server.process.send_signal(signal.SIGCONT)
            for c in asked:
                assert c.recv(100).startswith(b'HTTP/1.1 200 ')
                while c.recv(65536):
                    pass
                c.close()
        return [{**line, 'client': line['id'].split('-')[0]} for line in lib.jsonl(log) if line['path'] == '/v1/completions']


def while_all_wait(answers):
    """Those before the first client has so few left that none of its requests may wait."""
    names = [a['client'] for a in answers]
    left = {n: names.count(n) for n in names}
    for i, n in enumerate(names):
        left[n] -= 1
        if left[n] <= RUNNING:
            return answers[:i]
    raise AssertionError('no answers')


def served(answer):
    return answer['prompt_tokens'] - answer['cached_tokens'] + 2 * answer['output_tokens']


def test_two_keys_that_always_wait_are_served_by_weight_within_the_bound():
    """In order of arrival both would have as many answers for a while, and be apart by half of what one was served. An answer counts when it is whole: those
    that run at a moment may be missing from either side."""
    one, two = ('key-1', 'one'), ('key-2', 'two')
    answers = while_all_wait(answered([one, two] * 40 + [two] * 40, 'key-1 weight=1\nkey-2 weight=2\n')[10:])
    sums, apart = {'one': 0, 'two': 0}, [0]
    for a in answers:
        sums[a['client']] += served(a) / (1 if a['client'] == 'one' else 2)
        apart.append(sums['one'] - sums['two'])
    full = RUNNING * (PROMPT + ANSWER)
    bound = 2 * max(PROMPT, 2 * full) + 2 * full
    widest = max(apart) - min(apart)
    print(f'     {len(answers)} answers, apart by {widest:.0f} at most of {bound}')
    assert widest <= bound < sums['one'] / 2, (widest, bound, sums)


def test_a_user_with_many_requests_leaves_the_other_of_the_same_key_its_half():
    answers = while_all_wait(answered([('', 'many'), ('', 'many'), ('', 'many'), ('', 'few')] * 20))
    n = [sum(a['client'] == name for a in answers) for name in ('many', 'few')]
    print(f'     answers {n}')
    assert n[1] > 0.8 * n[0] and n[1] > 10, n


def test_a_late_key_does_not_wait_for_a_queue_of_another():
    """Some may have been answered before it is read."""
    answers = answered([('key-1', 'early')] * 40 + [('key-2', 'late')], 'key-1\nkey-2\n', running=1)
    first = [a['client'] for a in answers].index('late')
    print(f'     {first} answers of a queue of 40 came first')
    assert first <= 20, first


if __name__ == '__main__':
    lib.main(globals())
