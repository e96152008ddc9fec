"""test_fairness.py - keys with weights on a real engine: what clients were served, by the usage of their answers, against the bound of scheduler/fair.h."""
import os
import tempfile
import threading
import time

import lib

MODEL = os.path.join(lib.ROOT, 'models', 'quire-tiny')
RUNNING, PROMPT, ANSWER = 2, 12, 12


class Clients:
    """So many clients of a key, each with one request at a time until `enough` answers came in all; `answers` has them in order."""

    def __init__(self, server):
        self.server, self.answers, self.lock, self.done = server, [], threading.Lock(), False

    def ask(self, key, user, number, i):
        prompt = [3 + (number * 7919 + i * 104729 + k * k) % 200 for k in range(PROMPT)]  # nothing to find in the cache
        body = {'prompt': prompt, 'max_tokens': ANSWER, 'ignore_eos': True, 'user': user, 'cache_salt': f'{number} {i}'}
        status, answer = self.server.post('/v1/completions', body, {'Authorization': 'Bearer ' + key})
        assert status == 200, answer
        return answer['usage']

    def loop(self, key, user, number, enough):
        for i in range(100000):
            usage = self.ask(key, user, number, i)
            with self.lock:
                if self.done:
                    return
                self.answers.append((key, user, usage))
                self.done = len(self.answers) >= enough

    def run(self, who, enough):
        threads = [threading.Thread(target=self.loop, args=(key, user, i, enough)) for i, (key, user) in enumerate(who)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert self.done, 'a client has failed'


def served(usage):
    return usage['prompt_tokens'] - usage['prompt_tokens_details']['cached_tokens'] + 2 * usage['completion_tokens']


def widest(answers, shares, name):
    """How far the services of two names, by share, go apart over any part of the run."""
    sums, apart = dict.fromkeys(shares, 0), [0]
    one, two = shares
    for answer in answers:
        sums[name(answer)] += served(answer[2]) / shares[name(answer)]
        apart.append(sums[one] - sums[two])
    return max(apart) - min(apart), sums


def test_two_keys_that_always_wait_are_served_by_weight_within_the_bound():
    """Each key has four times as many clients as may run, so it waits all the time but for the beginning and the end. In order of arrival both would have as many
    answers, and be apart by half of what one was served. An answer counts when it is whole: those that run at a moment may be missing from either side."""
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, 'keys')
        with open(keys, 'w', encoding='utf-8') as f:
            f.write('one weight=1\ntwo weight=2\n')
        with lib.Server('--api-key-file', keys, '--max-running', str(RUNNING), model=MODEL) as server:
            clients = Clients(server)
            clients.run([('one', 'x')] * 4 * RUNNING + [('two', 'x')] * 4 * RUNNING, 150)
    full = RUNNING * (PROMPT + ANSWER)
    bound = 2 * max(PROMPT, 2 * full) + 2 * full
    apart, sums = widest(clients.answers[10:], {'one': 1, 'two': 2}, lambda a: a[0])
    n = [sum(key == name for key, _, _ in clients.answers) for name in ('one', 'two')]
    print(f'     answers {n}, apart by {apart:.0f} at most of {bound}')
    assert apart <= bound < sums['one'] / 2, (apart, bound, sums, n)


def test_a_user_with_many_requests_leaves_the_other_of_the_same_key_its_half():
    with lib.Server('--max-running', str(RUNNING), model=MODEL) as server:
        clients = Clients(server)
        clients.run([('', 'many')] * 12 + [('', 'few')] * 4, 120)
    n = [sum(user == name for _, user, _ in clients.answers) for name in ('many', 'few')]
    print(f'     answers {n}')
    assert n[1] > 0.8 * n[0], n


def test_a_late_key_does_not_wait_for_a_queue_of_another():
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, 'keys')
        with open(keys, 'w', encoding='utf-8') as f:
            f.write('one\ntwo\n')
        with lib.Server('--api-key-file', keys, '--max-running', '1', model=MODEL) as server:
            clients = Clients(server)
            crowd = threading.Thread(target=clients.run, args=([('one', 'x')] * 24, 400))
            crowd.start()
            while len(clients.answers) < 24:
                time.sleep(0.001)
            before = len(clients.answers)
            clients.ask('two', 'x', 99, 0)
            after = len(clients.answers)
            clients.done = True
            crowd.join()
    print(f'     {after - before} answers of a queue of 23 came first')
    assert after - before <= 8, (before, after)


if __name__ == '__main__':
    lib.main(globals())
