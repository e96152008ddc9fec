#!/usr/bin/env python3
"""The whole server on a real model: HTTP to tokens and back."""
import concurrent.futures
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

from lib import QUIRE, ROOT, SLOW, STORIES, Port, Server, Skip, environment, jsonl, main, need_data, program_seconds, release_only, run, run_lines, until_within
from test_quantized_files import read_tensors, write_tensors

BUNDLED = os.path.join(ROOT, 'models', 'quire-tiny')


def golden():
    need_data()
    return jsonl(os.path.join(STORIES, 'golden.jsonl'))


def greedy(ids, n, **more):
    return {'model': 'stories260K', 'prompt': ids, 'max_tokens': n, 'temperature': 0, 'ignore_eos': True, 'return_token_ids': True, **more}


def test_the_socket_listens_soon_after_exec():
    """4.5 ms on an idle machine; 50, or ten times what the program takes to say its version, are asked of the best start."""
    need_data()
    held = Port()
    port = held.number

    def listens():
        t0 = time.monotonic()
        p = subprocess.Popen([QUIRE, 'serve', '--model', STORIES, '--port', str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(None))
        try:
            while True:
                try:
                    socket.create_connection(('127.0.0.1', port), timeout=1).close()
                    return time.monotonic() - t0
                except OSError:
                    assert time.monotonic() - t0 < 60
                    time.sleep(0.0005)
        finally:
            p.send_signal(signal.SIGTERM)
            assert p.wait(60 * SLOW) == 0
    limit = max(0.05 * SLOW, 10 * program_seconds())
    best = until_within(limit, lambda: min(listens() for _ in range(3)))
    print(f'   listening after {best * 1000:.1f} ms at best, of {limit * 1000:.0f}')
    assert best <= limit, best


def test_greedy_tokens_over_http_equal_the_golden_streamed_or_not():
    lines = golden()
    with Server() as s:
        for g in lines:
            n = len(g['greedy_ids'])
            status, r = s.post('/v1/completions', greedy(g['prompt_ids'], n))
            assert status == 200, r
            assert r['choices'][0]['token_ids'] == g['greedy_ids'] and r['choices'][0]['finish_reason'] == 'length'
            assert r['usage']['completion_tokens'] == n and r['usage']['prompt_tokens'] == len(g['prompt_ids'])
            text, ids, usage = '', [], None
            for e in s.stream('/v1/completions', greedy(g['prompt_ids'], n, stream_options={'include_usage': True})):
                usage = e.get('usage') or usage
                for c in e['choices']:
                    text += c['text']
                    ids += c.get('token_ids') or []
            assert ids == g['greedy_ids'] and text == r['choices'][0]['text'] and usage['completion_tokens'] == n


def test_log_probabilities_over_http_are_those_that_score_says_in_every_digit():
    need_data()
    for model in (STORIES, BUNDLED):
        with Server(model=model) as s:
            for prompt in ([1, 17, 33, 100, 4, 9, 200, 31, 44, 2, 7] * 5, [9, 8, 7]):
                status, a = s.post('/v1/completions', {'prompt': prompt, 'max_tokens': 12, 'temperature': 0.7, 'seed': 4, 'ignore_eos': True, 'logprobs': 2,
                                                       'prompt_logprobs': 2, 'echo': True, 'return_token_ids': True})
                assert status == 200, a
                c = a['choices'][0]
                ids = prompt + c['token_ids'][-12:]
                told = run_lines('score', '--model', model, lines=[{'ids': ids}])[0]['logprobs']
                assert c['logprobs']['token_logprobs'] == told and len(told) == len(prompt) + 12, (model, c['logprobs'], told)
                assert [p[str(i)]['logprob'] for p, i in zip(c['prompt_logprobs'][1:], prompt[1:])] == told[1:len(prompt)], model


def test_requests_under_random_load_get_the_bytes_they_get_alone():
    lines = golden()
    rng = random.Random(20261121)
    cases = []
    for i in range(40):
        g = rng.choice(lines)
        cases.append(greedy(g['prompt_ids'] + g['greedy_ids'][:rng.randrange(60)], rng.randrange(5, 80), seed=i, logprobs=2,
                            temperature=rng.choice([0, 0.8, 1.2]), top_p=rng.choice([1, 0.9])))
    with Server('--no-prefix-cache') as s:
        want = [s.post('/v1/completions', c)[1]['choices'] for c in cases]
    with Server('--max-running', '8', '--max-chunk-tokens', '24', '--max-step-tokens', '40', '--kv-tokens', '1024') as s:
        got = [None] * len(cases)

        def ask(i):
            time.sleep(rng.random() * 0.3)
            status, r = s.post('/v1/completions', cases[i])
            got[i] = r['choices'] if status == 200 else r
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(cases))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert got == want, next((i, a, b) for i, (a, b) in enumerate(zip(got, want)) if a != b)


def metrics(s):
    out = {}
    for line in s.get('/metrics')[1].split('\n'):
        if line and not line.startswith('#'):
            name, value = line.rsplit(' ', 1)
            out[name.split('{')[0]] = out.get(name.split('{')[0], 0) + float(value)
    return out


def test_clients_that_vanish_free_their_places_and_the_ledger_balances():
    golden()
    with Server('--max-running', '4') as s:
        rng = random.Random(7)
        for _ in range(60):
            body = json.dumps({**greedy([1], 400), 'stream': True}).encode()
            c = socket.create_connection(('127.0.0.1', s.port))
            c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
            time.sleep(rng.random() * 0.02)
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
            c.close()
        status, r = s.post('/v1/completions', greedy([1], 5))
        assert status == 200, r
        for _ in range(1200):
            m = metrics(s)
            if m['vllm:num_requests_running'] == 0 and m['vllm:num_requests_waiting'] == 0:
                break
            time.sleep(0.05)
        assert m['vllm:num_requests_running'] == 0 and m['vllm:num_requests_waiting'] == 0, m


def test_sigterm_finishes_what_runs_refuses_what_is_new_and_exits_0():
    golden()
    with Server() as s:
        events = []

        def read():
            for e in s.stream('/v1/completions', greedy([1], 500)):
                events.append(e)
        t = threading.Thread(target=read)
        t.start()
        while not events:
            time.sleep(0.002)
        s.process.send_signal(signal.SIGTERM)
        try:
            while True:
                try:
                    if s.get('/readyz')[0] != 200:
                        break
                except (ConnectionResetError, http.client.RemoteDisconnected):
                    pass  # idle when the signal was read
                time.sleep(0.002)  # it has not read the signal yet
            status, _ = s.post('/v1/completions', greedy([1], 5))
            assert status == 503, status
        except OSError:
            pass
        t.join()
        assert sum(len(c.get('token_ids') or []) for e in events for c in e['choices']) == 500
        assert s.process.wait(60 * SLOW) == 0


HARMLESS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


def test_sighup_and_signals_without_a_meaning_stop_nothing():
    golden()
    with Server(wait=False) as s:
        while True:  # it listens, and may still open its model
            try:
                s.get('/livez')
                break
            except OSError:
                assert s.process.poll() is None
                time.sleep(0.001)
        for number in HARMLESS:
            s.process.send_signal(number)
        s.until_ready()
        stream = s.stream('/v1/completions', greedy([1], 300))
        events = [next(stream)]
        for number in HARMLESS:
            s.process.send_signal(number)
        events += stream
        assert sum(len(c.get('token_ids') or []) for e in events for c in e['choices']) == 300
        assert s.get('/readyz')[0] == 200 and s.stderr().count('reload: key files') == 2, s.stderr()
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(60 * SLOW) == 0
    with Server(before=('nohup',)) as s:
        s.process.send_signal(signal.SIGHUP)
        assert s.post('/v1/completions', greedy([1], 5))[0] == 200 and s.process.poll() is None
        assert 'SIGHUP' not in s.stderr()


def test_a_sighup_while_a_server_ends_does_not_change_how_it_ends():
    """A log may be rotated at any time. Of 40 ends beside so many signals 36 were deaths by them when libuv's default was left."""
    for _ in range(3):
        with Server(model=BUNDLED) as s:
            s.process.send_signal(signal.SIGTERM)
            while s.process.poll() is None:
                s.process.send_signal(signal.SIGHUP)
                time.sleep(0.0005)
            assert s.process.returncode == 0, (s.process.returncode, s.stderr())


def test_no_value_of_a_sampling_field_gives_500():
    golden()
    values = {'temperature': (0, 1e-46, 1e-38, 1e-5, 2), 'top_p': (0, 1e-46, 1e-38, 1), 'min_p': (0, 1e-46, 1e-38, 1), 'top_k': (-1, 1, 2147483647),
              'presence_penalty': (-2, 1e-46, 2), 'frequency_penalty': (-2, 1e-46, 2), 'repetition_penalty': (1e-46, 1e-38, 1e-4, 0.001, 100),
              'logit_bias': ({'5': -100}, {'5': 100}, {str(i): -100 for i in range(512)})}
    with Server() as s:
        for name, several in values.items():
            for value in several:
                status, r = s.post('/v1/completions', greedy([1, 5, 5, 9], 40, **{'temperature': 1, name: value}))
                refused = name == 'repetition_penalty' and value < 0.001
                assert status == (400 if refused else 200), (name, value, r)
                assert not refused or 'at least 0.001' in r['error']['message'], r


def test_bad_words_allowed_ids_and_truncation_hold_over_http_beside_other_requests():
    need_data()
    with Server('--model', STORIES) as s:
        def ask(**more):
            status, r = s.post('/v1/completions', {**greedy([1, 403, 407, 261], 30), **more})
            assert status == 200, r
            return r['choices'][0]
        free = ask()
        ids, word = free['token_ids'], free['text'].split()[2]
        told = ({'bad_words': [word]}, {'bad_words': [word], 'temperature': 0.8, 'seed': 7}, {'allowed_token_ids': ids[4:9]},
                {'allowed_token_ids': ids[:6], 'temperature': 1, 'seed': 3, 'bad_words': [word], 'logprobs': 2}, {'truncate_prompt_tokens': 2})
        alone = [ask(**t) for t in told]
        assert all(f' {word}' not in a['text'] for a in alone[:2]) and alone[0]['token_ids'] != ids
        assert set(alone[2]['token_ids']) <= set(ids[4:9]) and set(alone[3]['token_ids']) <= set(ids[:6])
        assert alone[4]['prompt_token_ids'] == [407, 261] and alone[4]['token_ids'] == ask(prompt=[407, 261])['token_ids']
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            for a, b in zip(alone * 4, pool.map(lambda t: ask(**t), list(told) * 4)):
                assert a['token_ids'] == b['token_ids'] and a['logprobs'] == b['logprobs']
        status, r = s.post('/v1/completions', {**greedy([1, 403], 5), 'prompt': 'Once upon a time', 'truncate_prompt_tokens': 2, 'echo': True, 'max_tokens': 0})
        assert status == 200 and r['choices'][0]['text'] == 'a time' and r['usage']['prompt_tokens'] == 2, r
        chat = {'model': 'stories260K', 'messages': [{'role': 'user', 'content': 'the ' * 700}], 'max_tokens': 9, 'truncate_prompt_tokens': -1}
        status, r = s.post('/v1/chat/completions', chat)
        assert status == 200 and r['usage']['prompt_tokens'] == 512 - 9, r
        status, r = s.post('/v1/chat/completions', {**chat, 'truncate_prompt_tokens': 504})
        assert status == 400 and r['error']['param'] == 'truncate_prompt_tokens' and '503' in r['error']['message'], r
        status, r = s.post('/v1/completions', {'model': 'stories260K', 'prompt': [1], 'max_tokens': 5, 'allowed_token_ids': [2], 'min_tokens': 2})
        assert status == 400 and 'no token is left' in r['error']['message'] and r['error']['param'] == 'allowed_token_ids', r


def test_a_server_without_standard_files_serves_and_ends_as_asked():
    """Sockets would get the numbers 0 to 2 otherwise: lines of the log would go to clients, and libuv aborts when it closes one of them."""
    golden()
    for closed in ('<&-', '<&- >&- 2>&-'):
        with Server('--verbose', before=('/bin/sh', '-c', f'exec "$@" {closed}', 'sh')) as s:
            assert s.post('/v1/completions', greedy([1], 5))[0] == 200
            s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(60 * SLOW) == 0, closed


def test_a_server_that_still_opens_its_model_ends_when_asked():
    golden()
    for _ in range(10):  # measuring takes a second; a test that is put aside for so long comes too late
        with tempfile.TemporaryDirectory() as cache, Server('--tune', 'now', wait=False, env={'XDG_CACHE_HOME': cache}) as s:
            while True:
                try:
                    status, text = s.get('/readyz')
                    break
                except OSError:
                    time.sleep(0.001)
            s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(60 * SLOW) == 0
            if status == 503 and 'ready ' not in s.stderr():
                assert 'loading' in text and not os.listdir(cache), (text, s.stderr())
                return
    raise AssertionError((status, text, s.stderr()))


def test_a_limit_on_its_address_space_makes_the_cache_smaller():
    golden()
    if 'asan' in QUIRE:
        raise Skip('the address sanitizer takes terabytes of addresses')
    with Server(model=BUNDLED, before=('/bin/sh', '-c', 'ulimit -v 200000; exec "$@"', 'sh')) as s:
        assert s.post('/v1/completions', {'prompt': 'Hello', 'max_tokens': 5})[0] == 200


def test_a_model_file_that_is_cut_while_it_is_served_ends_the_server_with_its_name():
    golden()
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'untied')
        shutil.copytree(STORIES, model)
        path = os.path.join(model, 'model.safetensors')
        tensors = read_tensors(path)
        write_tensors(path, {**tensors, 'lm_head.weight': tensors['model.embed_tokens.weight']})  # so rows of the embedding stay in the file
        with open(os.path.join(model, 'config.json'), encoding='utf-8') as f:
            config = json.load(f)
        with open(os.path.join(model, 'config.json'), 'w', encoding='utf-8') as f:
            json.dump({**config, 'tie_word_embeddings': False}, f)
        with Server(model=model) as s:
            assert s.post('/v1/completions', greedy([1], 5, model='untied'))[0] == 200
            os.truncate(path, 0)
            try:
                s.post('/v1/completions', greedy([1], 5, model='untied'))
            except OSError:
                pass
            assert s.process.wait(60 * SLOW) == 4, s.stderr()
            assert f'quire: {path}: became shorter while it was in use' in s.stderr(), s.stderr()


def test_a_full_queue_answers_429_with_retry_after_at_once():
    golden()
    with Server('--max-running', '1', '--max-waiting', '2') as s:
        results = []

        def ask():
            c = s.connect()
            c.request('POST', '/v1/completions', json.dumps(greedy([1], 500)), {'Content-Type': 'application/json'})
            r = c.getresponse()
            results.append((r.status, r.getheader('Retry-After')))
            r.read()
        for _ in range(10):  # together they are more than the queue takes, unless they are sent one by one
            threads = [threading.Thread(target=ask) for _ in range(12)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            codes = [c for c, _ in results]
            if 429 in codes:
                break
        assert 429 in codes and 200 in codes and set(codes) <= {200, 429}, codes
        assert all(after for c, after in results if c == 429)


def test_chat_tokenize_detokenize_models_and_version_answer():
    golden()
    with Server('--served-model-name', 'a', '--served-model-name', 'b') as s:
        status, r = s.post('/v1/chat/completions', {'model': 'a', 'messages': [{'role': 'user', 'content': 'Once upon a time'}], 'max_tokens': 20,
                                                    'temperature': 0, 'logprobs': True, 'top_logprobs': 2})
        assert status == 200 and r['object'] == 'chat.completion' and r['choices'][0]['message']['role'] == 'assistant', r
        assert len(r['choices'][0]['logprobs']['content']) == r['usage']['completion_tokens']
        text = ''.join(c['delta'].get('content') or '' for e in s.stream('/v1/chat/completions', {
            'model': 'b', 'messages': [{'role': 'user', 'content': 'Once upon a time'}], 'max_tokens': 20, 'temperature': 0}) for c in e['choices'])
        assert text == r['choices'][0]['message']['content']
        assert {m['id'] for m in json.loads(s.get('/v1/models')[1])['data']} == {'a', 'b'}
        status, t = s.post('/tokenize', {'model': 'a', 'prompt': 'Once upon a time'})
        assert status == 200 and t['count'] == len(t['tokens'])
        status, d = s.post('/detokenize', {'model': 'a', 'tokens': t['tokens']})
        assert status == 200 and 'Once upon a time' in d['prompt']
        v = json.loads(s.get('/version')[1])
        assert run('--version')[1] == f"quire {v['version']} ({v['commit']}, {v['level']})\n", v
        assert s.get('/health')[0] == s.get('/livez')[0] == 200
        status, e = s.post('/v1/completions', {'model': 'c', 'prompt': 'x'})
        assert status == 404 and set(e['error']) >= {'message', 'type', 'param', 'code'}, e


@release_only  # a leak checker looks into its process by the very calls that the sandbox refuses
def test_a_sandboxed_server_gives_the_same_answers_and_all_its_threads_are_in_the_sandbox():
    golden()
    with Server() as s:
        plain = s.post('/v1/completions', greedy([1], 20))[1]['choices']
    with Server('--sandbox') as s:
        with open(f'/proc/{s.process.pid}/status') as f:
            assert 'Seccomp:\t2' in f.read(), 'its threads have a filter'
        for task in os.listdir(f'/proc/{s.process.pid}/task'):
            with open(f'/proc/{s.process.pid}/task/{task}/status') as f:
                assert 'Seccomp:\t2' in f.read(), task
        status, answer = s.post('/v1/completions', greedy([1], 20))[:2]
        assert status == 200 and answer['choices'] == plain, answer
        assert s.get('/metrics')[0] == 200


def test_the_chat_client_answers_as_a_filter():
    golden()
    with Server() as s:
        url = f'http://127.0.0.1:{s.port}'
        rc, out, err = run('chat', '--url', url, '--max-tokens', '20', '--temperature', '0', 'Once upon a time')
        assert rc == 0 and out.endswith('\n') and len(out) > 10, (rc, out, err)
        rc, again, _ = run('chat', '--url', url, '--max-tokens', '20', '--temperature', '0', stdin='Once upon a time')
        assert rc == 0 and again == out
        ask = [QUIRE, 'chat', '--url', url, '--max-tokens', '20', '--temperature', '0', 'Once upon a time']
        for more in ([], ['--json']):
            with open('/dev/full', 'w') as full:
                p = subprocess.run([*ask, *more], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, env=environment(None), check=False)
            assert p.returncode == 4 and b'No space left' in p.stderr, (more, p.returncode, p.stderr)
        closed = subprocess.run(['/bin/sh', '-c', 'exec "$@" <&-', 'sh', *ask], capture_output=True, env=environment(None), check=False)
        assert closed.returncode == 0 and closed.stdout.decode() == out, closed
    rc, _, err = run('chat', '--url', url, 'x')
    assert rc == 3 and 'connect' in err, (rc, err)


def test_the_load_generator_measures_this_server():
    golden()
    with Server() as s:
        rc, out, err = run('bench', 'load', '--url', f'http://127.0.0.1:{s.port}', '--users', '4', '--num-requests', '24', '--input-len', '32',
                           '--output-len', '16')
        assert rc == 0 and 'TTFT' in out, (rc, out, err)


def test_a_taken_port_is_named_and_exits_with_3():
    need_data()
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        rc, _, err = run('serve', '--model', STORIES, '--port', port)
        assert rc == 3 and port in err, (rc, err)


def test_names_and_key_files_that_are_nothing_are_refused():
    need_data()
    with tempfile.TemporaryDirectory() as d:
        for flags, status, why in ((('--served-model-name', ''), 2, '--served-model-name: a name is empty'),
                                   (('--served-model-name', 'a', '--served-model-name', 'b\nc'), 2, 'a name has a control character at byte 1'),
                                   (('--api-key-file', d), 4, f"key file: cannot read '{d}': Is a directory"),
                                   (('--api-key', 'k', '--admin-key-file', d), 4, f"key file: cannot read '{d}': Is a directory")):
            rc, _, err = run('serve', '--model', STORIES, '--port', '0', *flags)
            assert rc == status and why in err, (rc, err)


def test_keys_guard_the_routes():
    golden()
    with Server('--api-key', 'sesame') as s:
        status, r = s.post('/v1/completions', greedy([1], 2))
        assert status == 401 and 'sesame' not in json.dumps(r)
        assert s.post('/v1/completions', greedy([1], 2), {'Authorization': 'Bearer wrong'})[0] == 401
        assert s.post('/v1/completions', greedy([1], 2), {'Authorization': 'Bearer sesame'})[0] == 200
        assert s.get('/health')[0] == 200


def warnings(text):
    return [line for line in text.splitlines() if line.startswith('WARNING')]


def test_keys_of_the_command_line_cannot_be_read_by_other_users():
    with Server('--api-key', 'sesame-1', '--admin-key=sesame-2', model=BUNDLED) as s:
        with open(f'/proc/{s.process.pid}/cmdline', 'rb') as f:
            words = f.read().split(b'\0')
        assert b'********' in words and b'--admin-key=********' in words and not any(b'sesame' in w for w in words), words
        assert s.get('/v1/models', {'Authorization': 'Bearer sesame-1'})[0] == 200 and s.get('/v1/models')[0] == 401
        assert s.get('/metrics', {'Authorization': 'Bearer sesame-2'})[0] == 200
        assert "-H 'Authorization: Bearer KEY'" in s.stderr() and '--api-key KEY\n' in s.stderr(), s.stderr()


def test_a_server_on_all_addresses_names_one_that_answers_and_warns_last_that_it_has_no_key():
    with Server('--host', '0.0.0.0', model=BUNDLED) as s:
        said = s.stderr()
        url = said.split('chat --url ')[1].split('\n')[0]
        assert '0.0.0.0' not in url and 'Bearer' not in said and f'curl {url}/v1/completions' in said and f'ready   http://0.0.0.0:{s.port}' in said, said
        with urllib.request.urlopen(url + '/livez', timeout=60 * SLOW) as r:
            assert r.status == 200
        assert warnings(said) == said.splitlines()[-1:] and 'anyone who can reach' in said and url[7:] in said.splitlines()[-1] and '--api-key' in said, said
    for args in (('--host', '0.0.0.0', '--api-key', 'k'), ()):
        with Server(*args, model=BUNDLED) as s:
            assert not warnings(s.stderr()), s.stderr()


def test_a_cache_that_is_too_small_for_prompts_is_warned_of_once():
    for args, says in ((('--kv-tokens', '16'), 'the cache holds 16 tokens, and no prompt with its answer can be longer: raise --kv-tokens'),
                       (('--kv-bytes', '100k'), 'raise --kv-bytes'), (('--kv-tokens', '240'), 'holds 240 tokens'), (('--kv-tokens', '256'), None),
                       (('--kv-tokens', '16', '--max-len', '16'), None)):
        with Server(*args, model=BUNDLED) as s:
            said = warnings(s.stderr())
            assert len(said) == (says is not None) and (says or '') in ''.join(said), (args, said)


if __name__ == '__main__':
    main(globals())
