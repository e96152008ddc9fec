"""Answers kept warm, on the bundled model: pins outlive a flood of the cache and nothing else does, and --warm-up computes prompts before the first request."""
import json
import os
import signal
import subprocess
import tempfile
import time

import lib
from lib import QUIRE, ROOT, Port, Server, environment, run

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
SMALL = ['--kv-tokens', '1024', '--max-len', '256']  # 64 blocks of 16; pins may hold 16
STORY = 'Once upon a time there was a girl named Lily who lived in a small house. ' * 4
CHAT = {'messages': [{'role': 'user', 'content': STORY}]}


def cached(s, headers=None, path='/v1/completions', **body):
    status, r = s.post(path, {'max_tokens': 4, 'temperature': 0, **body}, headers)
    assert status == 200, r
    return r['usage']['prompt_tokens_details']['cached_tokens'], r['choices'][0].get('text') or r['choices'][0]['message']['content']


def flood(s, headers=None):
    """More than the cache holds, of what it has not yet."""
    flood.n += 5
    prompts = [[100 + (i * 37 + j * (i + 1)) % 300 for j in range(240)] for i in range(flood.n - 5, flood.n)]
    status, r = s.post('/v1/completions', {'prompt': prompts, 'max_tokens': 1}, headers)
    assert status == 200 and r['usage']['prompt_tokens_details']['cached_tokens'] < 100, r


flood.n = 0


def pins(s, headers=None):
    return json.loads(s.get('/v1/cache/pins', headers)[1])


def delete(s, pin, headers=None):
    c = s.connect()
    c.request('DELETE', '/v1/cache/pin/' + pin, headers=headers or {})
    r = c.getresponse()
    body = json.loads(r.read())
    c.close()
    return r.status, body


def lines(d, *items):
    path = os.path.join(d, 'warm.jsonl')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(''.join((i if isinstance(i, str) else json.dumps(i)) + '\n' for i in items))
    return path


def test_pinned_prompts_stay_hits_through_a_flood_and_answers_are_the_same():
    asked = [('/v1/completions', {'prompt': STORY}), ('/v1/chat/completions', CHAT), ('/v1/completions', {'prompt': STORY, 'cache_salt': 'a'})]
    with Server(*SMALL, model=TINY) as s:
        cold = [cached(s, path=path, **body) for path, body in asked]
        assert [c[0] for c in cold] == [0, 0, 0], 'a salt has its own'
        flood(s)
        assert cached(s, prompt=STORY) == cold[0], 'without a pin it is gone'
        made = []
        for path, body in asked:
            status, pin = s.post('/v1/cache/pin', {**body, 'tools': None})
            assert status == 200 and pin['tokens'] == 16 * pin['blocks'] <= pin['prompt_tokens'] and pin['expires_at'] is None, pin
            made.append(pin)
        flood(s)
        for (path, body), pin, want in zip(asked, made, cold):
            found = cached(s, path=path, **body)
            assert found == ((pin['prompt_tokens'] - 1) // 16 * 16, want[1]) and found[0] > 50, (found, pin, want)
        n = sum(pin['blocks'] for pin in made)
        assert [p['id'] for p in pins(s)['data']] == [pin['id'] for pin in made] and pins(s)['blocks'] == n
        state = json.loads(s.get('/v1/ops/state')[1])
        assert state['blocks']['used'] == n and f'quire_kv_blocks_pinned{{model_name="quire-tiny",engine="0"}} {n}.0' in s.get('/metrics')[1], state['blocks']
        for pin in made:
            assert delete(s, pin['id']) == (200, {'id': pin['id'], 'object': 'cache.pin', 'deleted': True}) and delete(s, pin['id'])[0] == 404
        flood(s)
        assert [cached(s, path=path, **body) for path, body in asked] == cold and pins(s)['data'] == [] and pins(s)['blocks'] == 0


def test_pins_end_with_their_time_and_share_and_always_leave_room_for_a_whole_context():
    with Server(*SMALL, model=TINY) as s:
        status, pin = s.post('/v1/cache/pin', {'prompt': STORY, 'ttl': '1s'})
        assert status == 200 and abs(pin['expires_at'] - time.time() - 1) < 30, pin  # of a wall clock's whole seconds
        end = time.monotonic() + 20
        while pins(s)['data']:
            assert time.monotonic() < end
            time.sleep(0.05)
        while pins(s)['blocks']:
            assert time.monotonic() < end, 'an idle engine lets them go, too'
        flood(s)
        assert cached(s, prompt=STORY)[0] == 0
        for body, status, code in (({'prompt': list(range(100, 300)) * 2}, 400, 'context_length_exceeded'), ({'prompt': [7] * 15}, 400, 'invalid_value'),
                                   ({'prompt': ['a', 'b']}, 400, 'invalid_value'), ({'prompt': 'a', **CHAT}, 400, 'invalid_value'), ({}, 400, 'invalid_value'),
                                   ({'prompt': STORY, 'ttl': '0s'}, 400, 'invalid_value'), ({'prompt': STORY, 'ttl': []}, 400, 'invalid_value'),
                                   ({'prompt': STORY, 'key': 'nobody'}, 404, 'not_found'), ({'prompt': STORY, 'model': 'none'}, 404, 'model_not_found')):
            got, r = s.post('/v1/cache/pin', body)
            assert got == status and r['error']['code'] == code, (body, r)
        ids = [100 + i * 7 % 300 for i in range(256)]
        assert s.post('/v1/cache/pin', {'prompt': ids})[1]['blocks'] == 16, 'a whole context'
        assert s.post('/v1/cache/pin', {'prompt': ids[:250]})[1]['blocks'] == 15 and pins(s)['blocks'] == 16, 'blocks of both count once'
        status, r = s.post('/v1/cache/pin', {'prompt': STORY})
        assert status == 429 and r['error']['code'] == 'pins_full' and 'hold 16 blocks of at most 16' in r['error']['message'], r
        assert cached(s, prompt=[9 + i % 50 for i in range(252)])[0] == 0, 'another whole context beside'
    with Server('--kv-tokens', '256', '--max-len', '256', model=TINY) as s:
        status, r = s.post('/v1/cache/pin', {'prompt': STORY})
        assert status == 429 and '0 of 16 blocks' in r['error']['message'] and '--max-len' in r['error']['message'], r
    with Server(*SMALL, '--no-prefix-cache', model=TINY) as s:
        status, r = s.post('/v1/cache/pin', {'prompt': STORY})
        assert status == 400 and r['error']['code'] == 'unsupported', r


def test_the_first_request_finds_what_was_warmed_up_and_keys_have_their_own():
    with tempfile.TemporaryDirectory() as d:
        keys = os.path.join(d, 'keys')
        with open(keys, 'w', encoding='utf-8') as f:
            f.write('key-of-ann name=ann\nkey-of-bob name=bob\n')
        ann, bob, admin = ({'Authorization': 'Bearer ' + k} for k in ('key-of-ann', 'key-of-bob', 'the-admin'))
        path = lines(d, {'prompt': STORY, 'key': 'ann', 'pin': True}, '', {**CHAT, 'key': 'bob'})
        with Server(*SMALL, '--api-key-file', keys, '--admin-key', 'the-admin', '--warm-up', path, model=TINY) as s:
            assert 'warm    2 prompts' in s.stderr() and '1 pinned' in s.stderr(), s.stderr()
            assert cached(s, ann, prompt=STORY)[0] > 50 and cached(s, bob, '/v1/chat/completions', **CHAT)[0] > 50
            assert cached(s, bob, prompt=STORY + 'x')[0] == 0, 'it is the key of ann that has it'
            flood(s, bob)
            assert cached(s, ann, prompt=STORY)[0] > 50 and cached(s, bob, '/v1/chat/completions', **CHAT)[0] == 0
            assert s.post('/v1/cache/pin', {'prompt': STORY}, ann)[0] == 403 and s.get('/v1/cache/pins', bob)[0] == 403
            text = s.get('/v1/cache/pins', admin)[1]
            assert 'Lily' not in text and 'key-of' not in text and len(json.loads(text)['data']) == 1
            assert s.post('/v1/cache/pin', {'prompt': STORY, 'key': 'bob'}, admin)[0] == 200 and cached(s, bob, prompt=STORY)[0] > 50
            assert len({p['owner'] for p in pins(s, admin)['data']}) == 2
            assert delete(s, json.loads(text)['data'][0]['id'], admin)[0] == 200
        rc, _, err = run('serve', TINY, '--port', '0', '--api-key', 'k', '--warm-up', lines(d, {'prompt': STORY}))
        assert rc == 2 and f'{d}/warm.jsonl:1: key is required' in err, (rc, err)


def test_a_line_that_cannot_be_computed_ends_the_start_with_its_number():
    with tempfile.TemporaryDirectory() as d:
        for items, status, says in ((['{"prompt": "a"}', '', '{"prompt": '], 2, 'warm.jsonl:3: '), (['[1]'], 2, 'warm.jsonl:1: '),
                                    ([{'prompt': STORY}, {'prompt': [1, -5]}, {'messages': []}], 2, 'warm.jsonl:2: prompt[1]'),
                                    ([{'prompt': 'short', 'pin': True}], 2, 'warm.jsonl:1: the prompt has'),
                                    ([{'prompt': list(range(9, 209)), 'pin': True}, {'prompt': list(range(100, 300)), 'pin': True}], 5, 'warm.jsonl:'),
                                    ([{'prompt': 'a'}] * 1001, 2, 'may have 1000 prompts')):
            rc, _, err = run('serve', TINY, '--port', '0', *SMALL, '--warm-up', lines(d, *items))
            assert rc == status and says in err, (items[:3], rc, err)
        lines(d, {'prompt': STORY}, {'prompt': [1, -5]}, {'messages': []})
        rc, _, err = run('serve', TINY, '--port', '0', *SMALL, '--warm-up', os.path.join(d, 'warm.jsonl'))
        assert 'warm.jsonl:3: messages' in err, err
        rc, _, err = run('serve', TINY, '--port', '0', '--warm-up', os.path.join(d, 'none'))
        assert rc == 4 and '--warm-up' in err and 'ready' not in err, (rc, err)
        rc, _, err = run('serve', TINY, '--warm-up', lines(d, '{'), '--check-config')
        assert rc == 2 and 'warm.jsonl:1' in err, (rc, err)


def test_a_signal_while_prompts_are_warmed_up_ends_the_start_at_once():
    with tempfile.TemporaryDirectory() as d:
        path = lines(d, *({'prompt': [100 + (i * 37 + j * (i + 1)) % 300 for j in range(900)]} for i in range(1000)))
        s = Server('--warm-up', path, model=TINY, wait=False)
        with s:
            end = time.monotonic() + 60 * lib.SLOW
            while True:
                try:
                    if s.get('/readyz') == (503, '{"status":"loading"}'):
                        break
                except OSError:
                    assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(0.5)
            assert s.get('/readyz')[0] == 503, 'a million tokens take longer'
            began = time.monotonic()
            s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(60) == 0 and time.monotonic() - began < 0.5 * lib.PATIENCE, s.stderr()


lib.main(globals())
