#!/usr/bin/env python3
"""--tensor-parallel: one model on several processes; their answers, what they refuse, and how they end."""
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

from lib import PATIENCE, QUIRE, SLOW, STORIES, Server, Skip, another_order, gone, main, need_data, run, run_lines
from test_quantized_files import write_tensors
from test_ranks import children_of

IDS = [[1, 403, 407, 261, 378], [1, 346], [1] + [300 + i for i in range(90)]]
FFN = 172  # inputs of the widest product of stories260K
SECONDS = 2  # what a lost rank may take to be seen, by PATIENCE


def until_gone(pids, seconds):
    end = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < end:
        if all(gone(p) for p in pids):
            return
        time.sleep(0.01)
    raise AssertionError(f'still there after {seconds} s: {[p for p in pids if not gone(p)]}')


def differences(a, b):
    return max(abs(x - y) for x, y in zip(a['logprobs'], b['logprobs']) if x is not None)


def test_scores_of_2_and_4_processes_are_the_same_bytes_every_time_and_those_of_one_but_for_rounding():
    """Bound: as in tests/model/test_ranks.c. Ranks add two sums a layer in another order, instruction-set levels all sums, so that ranks may differ by twice what
    ref and the best level differ by."""
    need_data()
    other, share = another_order(FFN)
    lines = [{'ids': x} for x in IDS]
    one, moved_one = (run_lines('score', '--model', STORIES, *how, lines=lines) for how in ([], other))
    moved = share * max(differences(a, b) for a, b in zip(one, moved_one))
    for n in ('2', '4'):
        some, again = (run_lines('score', '--model', STORIES, '--tensor-parallel', n, '--threads', '1', lines=lines) for _ in range(2))
        assert some == again, n
        worst = max(differences(a, b) for a, b in zip(one, some))
        print(f'   {n} processes: log-probabilities differ by at most {worst:.1e}, another order by {moved:.1e}')
        assert 0 < worst <= 2 * moved, (worst, moved)


def test_what_two_processes_generate_is_what_they_serve_and_stdout_has_nothing_else():
    need_data()
    args = ['--model', STORIES, '--tensor-parallel', '2', '--threads', '1']
    rc, out, err = run('generate', *args, '--prompt-ids', '1,346', '--max-tokens', '40', '--json')
    assert rc == 0 and out.count('\n') == 1 and err == '', (rc, out, err)
    generated = json.loads(out)
    one = json.loads(run('generate', '--model', STORIES, '--prompt-ids', '1,346', '--max-tokens', '40', '--json')[1])
    assert generated == one
    with Server('--tensor-parallel', '2', '--threads', '1') as s:
        child, = children_of(s.process.pid)
        body = {'model': 'stories260K', 'prompt': [1, 346], 'max_tokens': 40, 'temperature': 0}
        status, answer = s.post('/v1/completions', body)
        assert status == 200 and answer['choices'][0]['text'] == generated['text'], answer
        assert ''.join(e['choices'][0]['text'] for e in s.stream('/v1/completions', body)) == generated['text']
        assert 'ranks   2 processes (shm)' in s.stderr(), s.stderr()
        os.kill(child, signal.SIGTERM)
        os.kill(child, signal.SIGINT)
        assert s.post('/v1/completions', body)[0] == 200, 'a process that follows ends when it is told so by rank 0 alone'
    assert s.process.returncode == 0
    until_gone([child], SECONDS)


class Adapters(tempfile.TemporaryDirectory):
    """Directories one, two and wide, as PEFT writes them, with random adapters of every matrix of stories260K's layers; wide says another rank than it has."""

    SIZES = {'self_attn.q_proj': (64, 64), 'self_attn.k_proj': (32, 64), 'self_attn.v_proj': (32, 64), 'self_attn.o_proj': (64, 64), 'mlp.gate_proj': (172, 64),
             'mlp.up_proj': (172, 64), 'mlp.down_proj': (64, 172)}

    def __enter__(self):
        self.dir = super().__enter__()
        r = random.Random(11)
        for name, said in (('one', 4), ('two', 4), ('wide', 5)):
            os.mkdir(self.path(name))
            with open(os.path.join(self.path(name), 'adapter_config.json'), 'w', encoding='utf-8') as f:
                json.dump({'peft_type': 'LORA', 'r': said, 'lora_alpha': 8}, f)
            tensors = {}
            for layer in range(5):
                for matrix, (n_out, n_in) in self.SIZES.items():
                    for which, shape in (('A', [4, n_in]), ('B', [n_out, 4])):
                        n = shape[0] * shape[1]
                        tensors[f'base_model.model.model.layers.{layer}.{matrix}.lora_{which}.weight'] = (
                            'F32', shape, struct.pack(f'<{n}f', *(r.gauss(0, 0.1) for _ in range(n))))
            write_tensors(os.path.join(self.path(name), 'adapter_model.safetensors'), tensors)
        return self

    def path(self, name):
        return os.path.join(self.dir, name)


def test_scores_with_an_adapter_of_2_and_4_processes_are_those_of_one_but_for_rounding():
    """Bound: as above. What an adapter adds joins the same two sums."""
    need_data()
    lines = [{'ids': x} for x in IDS]
    other, share = another_order(FFN)
    with Adapters() as a:
        lora = ['--lora', a.path('one')]
        one, moved_one = (run_lines('score', '--model', STORIES, *lora, *how, lines=lines) for how in ([], other))
        moved = share * max(differences(x, y) for x, y in zip(one, moved_one))
        assert max(differences(x, y) for x, y in zip(one, run_lines('score', '--model', STORIES, lines=lines))) > 0.1
        for n in ('2', '4'):
            some = run_lines('score', '--model', STORIES, *lora, '--tensor-parallel', n, '--threads', '1', lines=lines)
            worst = max(differences(x, y) for x, y in zip(one, some))
            print(f'   {n} processes: log-probabilities differ by at most {worst:.1e}, another order by {moved:.1e}')
            assert 0 < worst <= 2 * moved, (worst, moved)


def test_adapters_come_and_go_on_two_processes_and_one_that_does_not_fit_is_on_neither():
    need_data()
    args = ['--tensor-parallel', '2', '--threads', '1']
    asked = {'prompt': [1, 346], 'max_tokens': 24, 'temperature': 0, 'logprobs': 1}
    with Adapters() as a:
        def ask(s, model):
            status, answer = s.post('/v1/completions', {'model': model, **asked})
            assert status == 200, answer
            return answer['choices'][0]

        def load(s, name, path, **more):
            return s.post('/v1/load_lora_adapter', {'lora_name': name, 'lora_path': path, **more})

        told = [json.loads(run('generate', '--model', STORIES, *args, '--prompt-ids', '1,346', '--max-tokens', '24', '--json', *lora)[1])['text']
                for lora in ([], ['--lora', a.path('one')], ['--lora', a.path('two')])]
        assert len(set(told)) == 3
        with Server(*args, '--lora', f'one={a.path("one")}', '--lora-dir', a.dir, '--lora-slots', '2') as s:
            child, = children_of(s.process.pid)
            plain, one = ask(s, 'stories260K'), ask(s, 'one')
            assert [plain['text'], one['text']] == told[:2], (plain, one, told)
            status, answer = load(s, 'wide', 'wide')
            assert status == 400 and 'is [4, 64], expected [5, 64]' in answer['error']['message'], answer
            status, answer = load(s, 'two', 'two')
            assert status == 200, answer
            assert ask(s, 'two')['text'] == told[2]
            both, threads = {}, [threading.Thread(target=lambda i=i, n=n: both.update({(n, i): ask(s, n)})) for i in range(3) for n in ('stories260K', 'one')]
            for t in threads:
                t.start()
            assert load(s, 'two', 'one', load_inplace=True)[0] == 429  # no slot is free meanwhile
            assert s.post('/v1/unload_lora_adapter', {'lora_name': 'two'})[0] == 200
            assert load(s, 'again', 'one')[0] == 200 and ask(s, 'again') == one
            for t in threads:
                t.join(60 * SLOW)
            assert len(both) == 6 and all(both[n, i] == (one if n == 'one' else plain) for n, i in both), (both, one, plain)
            assert s.post('/v1/completions', {'model': 'two', **asked})[0] == 404
            os.kill(child, signal.SIGKILL)
            assert s.process.wait(SECONDS * PATIENCE) == 1


def start_streams(server, n):
    """n long streams, each of which has begun; returns what becomes of each: (what its last event was, when)."""
    ends, begun, threads = [], threading.Semaphore(0), []

    def one():
        last, seen = None, False
        try:
            for last in server.stream('/v1/completions', {'model': 'stories260K', 'prompt': [1, 346], 'max_tokens': 450, 'ignore_eos': True, 'temperature': 0}):
                if not seen:
                    begun.release()
                seen = True
        except (AssertionError, OSError) as e:
            last = last if last and 'error' in last else {'broken': str(e)}
        ends.append((last, time.monotonic()))

    for _ in range(n):
        threads.append(threading.Thread(target=one))
        threads[-1].start()
    for _ in range(n):
        assert begun.acquire(timeout=60 * SLOW)
    return ends, threads


def is_complete(last):
    return bool(last and last.get('choices')) and last['choices'][0]['finish_reason'] == 'length'


def test_a_process_that_is_killed_ends_every_stream_with_an_error_soon_and_the_server():
    need_data()
    for _ in range(10):
        with Server('--tensor-parallel', '2', '--threads', '1', '--isa', 'ref') as s:
            child, = children_of(s.process.pid)
            ends, threads = start_streams(s, 4)
            killed = time.monotonic()
            os.kill(child, signal.SIGKILL)
            for t in threads:
                t.join(60 * SLOW)
            assert len(ends) == 4
            assert s.process.wait(60 * SLOW) == 1
        under_way = [end for end in ends if not is_complete(end[0])]  # on a busy machine one may be through before the last begins, or all
        if not under_way:
            continue
        for last, when in under_way:
            assert last and 'error' in last and last['error']['message'].startswith('one of the processes that compute the model ended'), last
            assert when - killed < SECONDS * PATIENCE, when - killed
        text = s.stderr()
        assert 'a rank is lost' in text and 'rank 1' in text and 'signal 9' in text, text
        print(f'   streams ended after {max(w for _, w in ends) - killed:.2f} s')
        return
    raise AssertionError('every stream was through before the process was killed, ten times')


def test_a_process_that_is_killed_while_nothing_runs_ends_the_server_soon():
    need_data()
    with Server('--tensor-parallel', '2', '--threads', '1') as s:
        child, = children_of(s.process.pid)
        killed = time.monotonic()
        os.kill(child, signal.SIGKILL)
        assert s.process.wait(SECONDS * PATIENCE) == 1
        print(f'   after {time.monotonic() - killed:.2f} s')


def test_sighup_and_signals_without_a_meaning_stop_none_of_the_processes():
    need_data()
    with Server('--tensor-parallel', '2', '--threads', '1') as s:
        for pid in [*children_of(s.process.pid), s.process.pid]:
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
                os.kill(pid, number)
        ends, threads = start_streams(s, 2)
        for t in threads:
            t.join(60 * SLOW)
        assert all('choices' in last for last, _ in ends), ends
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(60 * SLOW) == 0, s.stderr()


def test_nobody_outlives_a_server_that_is_killed_or_that_is_told_to_end_under_load():
    need_data()
    with Server('--tensor-parallel', '4', '--threads', '1') as s:
        children = children_of(s.process.pid)
        assert len(children) == 3
        os.kill(s.process.pid, signal.SIGKILL)
        s.process.wait()
        until_gone(children, SECONDS)
    with Server('--tensor-parallel', '2', '--threads', '1') as s:
        children = children_of(s.process.pid)
        ends, threads = start_streams(s, 4)
        for pid in [*children, s.process.pid]:  # as a service manager does, which asks the whole group
            os.kill(pid, signal.SIGTERM)
        for t in threads:
            t.join(60 * SLOW)
        assert all('choices' in last for last, _ in ends), ends
        assert s.process.wait(60 * SLOW) == 0, s.stderr()
        until_gone(children, SECONDS)


def test_what_cannot_be_shared_out_is_refused_once_and_says_what_to_do():
    need_data()
    for args, status, words in [(['--tensor-parallel', '5'], 4, ['5 ranks', '4 key-value heads', '--tensor-parallel 4']),
                                (['--tensor-parallel', '2', '--cpus', '1000'], 2, ['may not use processor 1000']),
                                (['--tensor-parallel', '2', '--tune', 'now'], 2, ['--tune now', 'cached']),
                                (['--tensor-parallel', '2', '--kv-host-gib', '900000'], 5, ['--kv-host-gib', 'for each of 2 processes']),
                                (['--tensor-parallel', '2', '--kv-tokens', '1', '--max-len', '500'], 5, ['does not fit'])]:
        rc, out, err = run('generate', '--model', STORIES, *args, '--prompt-ids', '1')
        assert rc == status and out == '' and err.count('\n') == 1 and all(w in err for w in words), (args, rc, err)
    with Server('--tensor-parallel', '5', wait=False) as s:
        assert s.process.wait(60 * SLOW) == 4
        assert s.stderr().count('5 ranks, but the model has 4 key-value heads') == 1, s.stderr()


def test_processes_share_out_a_list_of_processors():
    need_data()
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        raise Skip('one processor')
    with Server('--tensor-parallel', '2', '--threads', '1', '--cpus', f'{mine[1]},{mine[0]}') as s:
        child, = children_of(s.process.pid)
        first, second = os.sched_getaffinity(s.process.pid), os.sched_getaffinity(child)
        assert not first & second and first | second <= set(mine[:2]), (first, second)


def test_the_plan_is_that_of_one_of_the_processes():
    need_data()
    one, four = (json.loads(run('plan', '--model', STORIES, '--json', '--tensor-parallel', n, '--kv-tokens', '4096')[1]) for n in ('1', '4'))
    assert (one['ranks'], four['ranks']) == (1, 4)
    assert four['kv_bytes'] * 4 == one['kv_bytes'] and four['kv_blocks'] == one['kv_blocks']
    assert four['weight_bytes'] < 0.6 * one['weight_bytes'] and four['act_bytes'] <= one['act_bytes'], (one, four)
    lora = ['--lora-slots', '3', '--kv-tokens', '4096', '--json']
    one, four = (json.loads(run('plan', '--model', STORIES, '--tensor-parallel', n, *lora)[1])['lora_bytes'] for n in ('1', '4'))
    # Half of an adapter's numbers are not cut: A where outputs are, B where inputs are; and a slot and a piece of it are what travels.
    assert 0.5 * one < four < 1.3 * one, (one, four)


def test_blocks_that_leave_the_cache_of_two_processes_come_back_from_each_ones_memory():
    need_data()
    prompts = [[1] + [3 + (17 * k + 5 * i) % 500 for i in range(39)] for k in (0, 1, 2, 0)]  # two full blocks each; the cache has four
    args = ['--tensor-parallel', '2', '--threads', '1', '--kv-tokens', '64', '--max-len', '64', '--kv-host-gib', '0.001']
    with Server(*args) as s:
        got = [s.post('/v1/completions', {'model': 'stories260K', 'prompt': p, 'max_tokens': 8, 'temperature': 0, 'logprobs': 1})[1] for p in prompts]
        assert got[0]['choices'] == got[3]['choices'] != got[1]['choices'], got
        metrics = dict(line.split(' ')[:2] for line in s.get('/metrics')[1].split('\n') if line and line[0] != '#')
        came = {k.split('{')[0]: float(v) for k, v in metrics.items() if 'kv_host' in k}
        assert came['quire_kv_host_hit_tokens_total'] == 32 and came['quire_kv_host_blocks_cached'] >= 2, came


def test_the_parts_of_the_plan_make_its_total():
    need_data()
    four = json.loads(run('plan', '--model', STORIES, '--json', '--tensor-parallel', '4', '--lora-slots', '2')[1])
    assert math.isclose(four['total_bytes'], sum(v for k, v in four.items() if k.endswith('_bytes') and k not in ('kv_token_bytes', 'total_bytes', 'requests_bytes', 'grammars_bytes',
                                                                                                                 'available_bytes')))


def test_processes_of_mpirun_say_what_forked_ones_do():
    need_data()
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(os.path.dirname(QUIRE), 'libquire_mpi.so')):
        raise Skip('no mpirun, or no libquire_mpi.so beside the program')
    env = {**os.environ, 'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}  # Open MPI's own
    with Adapters() as a:
        args = ['generate', '--model', STORIES, '--tensor-parallel', '2', '--threads', '1', '--prompt-ids', '1,346', '--max-tokens', '12', '--json',
                '--lora', a.path('one')]
        p = subprocess.run(['mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-n', '2', QUIRE, *args], capture_output=True,
                           timeout=100 * SLOW, env=env, check=False)
        assert p.returncode == 0, p.stderr.decode()
        assert p.stdout.decode() == run(*args)[1], p.stdout.decode()


if __name__ == '__main__':
    main(globals())
