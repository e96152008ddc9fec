#!/usr/bin/env python3
"""Ranks that a launcher starts one by one and that meet by TCP: their answers, how they end, and what is refused."""
import json
import os
import signal
import subprocess
import tempfile
import time

from lib import PATIENCE, QUIRE, SLOW, STORIES, Port, Server, environment, main, need_data, run
from test_ranks import children_of
from test_tensor_parallel import SECONDS, is_complete, start_streams, until_gone

ARGS = ['--tensor-parallel', '2', '--threads', '1']
IDS = ['--model', STORIES, '--prompt-ids', '1,346', '--max-tokens', '40', '--json']


def of_set(index, size=2, leader='127.0.0.1'):
    """LeaderWorkerSet's variables of a pod."""
    return {'LWS_WORKER_INDEX': str(index), 'LWS_GROUP_SIZE': str(size), 'LWS_LEADER_ADDRESS': leader}


class Rank:
    """A rank that is not rank 0; ended by its process id when left."""

    def __init__(self, *args, env=None):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([QUIRE, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log, env=environment(env))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stderr(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()


class Group:
    """Two pods of a LeaderWorkerSet, one of which serves."""

    def __init__(self, *args, port=None):
        self.held = Port()
        leader = f'127.0.0.1:{self.held.number}'
        self.server = Server(*ARGS, *args, env=of_set(0, leader=leader), wait=False)
        self.other = Rank('serve', '--model', STORIES, *ARGS, *args, env=of_set(1, leader=leader))

    def __enter__(self):
        self.server.until_ready()
        return self

    def __exit__(self, *exc):
        with self.other:
            self.server.__exit__(*exc)


def test_two_pods_of_a_leader_worker_set_answer_the_bytes_of_two_processes_of_one_machine_and_end_together():
    need_data()
    body = {'model': 'stories260K', 'prompt': [1, 346], 'max_tokens': 40, 'temperature': 0, 'logprobs': 3}
    sampled = {**body, 'temperature': 1, 'seed': 7}

    def answers(s):
        texts = [s.post('/v1/completions', b) for b in (body, sampled)]
        assert all(status == 200 for status, _ in texts), texts
        return [answer['choices'] for _, answer in texts]

    with Server(*ARGS) as s:
        one_machine = answers(s)
    with Group() as g:
        assert answers(g.server) == one_machine
        text = g.server.stderr()
        assert 'ranks   2 processes (tcp)' in text and 'waiting for the others n=1 at=127.0.0.1:' in text, text
        assert not children_of(g.server.process.pid)
        os.kill(g.other.process.pid, signal.SIGTERM)
        assert answers(g.server) == one_machine, 'a rank that follows ends when rank 0 does'
        g.server.process.send_signal(signal.SIGTERM)
        assert g.server.process.wait(60 * SLOW) == 0 and g.other.process.wait(60 * SLOW) == 0, g.other.stderr()
        assert g.other.stderr() == '', g.other.stderr()


def test_a_rank_that_is_killed_ends_every_stream_and_the_others_soon_and_is_named():
    need_data()
    for victim in ('first', 'other', 'idle'):
        for _ in range(10):
            with Group('--isa', 'ref') as g:
                ends, threads = start_streams(g.server, 2) if victim != 'idle' else ([], [])
                killed = time.monotonic()
                os.kill(g.server.process.pid if victim == 'first' else g.other.process.pid, signal.SIGKILL)
                for t in threads:
                    t.join(60 * SLOW)
                until_gone([g.server.process.pid, g.other.process.pid], SECONDS)
                print(f'   {victim}: {time.monotonic() - killed:.2f} s')
                status, errors = (g.other if victim == 'first' else g.server).process.wait(), (g.other if victim == 'first' else g.server).stderr()
            if victim == 'idle' or not all(is_complete(last) for last, _ in ends):
                break
        assert status == 1 and f'rank {0 if victim == "first" else 1} (127.0.0.1:' in errors and ') died' in errors, (victim, status, errors)


def test_ranks_started_by_hand_meet_and_ctrl_c_ends_each():
    need_data()
    want = run('generate', *ARGS, *IDS)
    assert want[0] == 0, want
    with tempfile.NamedTemporaryFile('w') as secret:
        secret.write('a secret\n')
        secret.flush()
        held = Port()
        meet = ['--ranks-at', f'127.0.0.1:{held.number}', '--ranks-secret-file', secret.name]
        with Rank('generate', *ARGS, *IDS, *meet, '--rank', '1') as other:
            rc, out, err = run('generate', *ARGS, *IDS, *meet, '--rank', '0')
            assert rc == 0 and out == want[1], (rc, out, err)
            assert other.process.wait(60 * SLOW) == 0 and other.stderr() == '', other.stderr()
        for rank in ('0', '1'):
            with Rank('generate', *ARGS, *IDS, *meet, '--rank', rank) as alone:
                until = time.monotonic() + 60 * SLOW
                while rank == '0' and 'waiting for the others' not in alone.stderr() and time.monotonic() < until:
                    time.sleep(0.01)
                os.kill(alone.process.pid, signal.SIGINT)
                assert alone.process.wait(SECONDS * PATIENCE) in (-signal.SIGINT, 130), alone.stderr()


def test_what_does_not_fit_is_refused_with_one_line_that_says_what_to_do():
    held = Port()
    at = f'127.0.0.1:{held.number}'
    soon = ['--ranks-wait', '10ms']
    tiny = ['--model', STORIES, '--prompt-ids', '1']
    need_data()
    for args, env, status, words in [
            (['--tensor-parallel', '3'], of_set(1), 2, ['3 ranks asked for, but LeaderWorkerSet started 2']),
            (['--tensor-parallel', '2', '--rank', '2'], {}, 2, ['--rank must be from 0 to 1']),
            (['--rank', '1'], {}, 2, ['--rank 1', 'of how many']),
            (['--tensor-parallel', '2'], {'PMI_RANK': '0', 'PMI_SIZE': '2'}, 2, ['add --ranks-at']),
            (['--tensor-parallel', '2', '--rank', '0', '--ranks-at', 'nowhere:x'], {}, 2, ["'nowhere:x' is no address"]),
            (['--tensor-parallel', '2', '--rank', '0', '--ranks-secret-file', '/nowhere'], {}, 4, ['--ranks-secret-file', '/nowhere']),
            (['--tensor-parallel', '2', '--rank', '1', '--ranks-at', at, *soon], {}, 3, ['rank 0 was not found within', at]),
            (['--tensor-parallel', '2', *soon], of_set(0, leader=at), 1, ['rank 1 of 2 did not come within'])]:
        rc, out, err = run('generate', *tiny, *args, env=env)
        last = err.rstrip('\n').rsplit('\n', 1)[-1]
        assert rc == status and out == '' and all(w in last for w in words), (args, rc, err)


def test_training_by_ranks_that_meet_gives_the_bytes_of_one_process():
    from test_train import World
    with World() as w:
        step = ['batch.micro=4', 'batch.leaves=4']
        w.train(*step)
        held = Port()
        env = of_set(1, leader=f'127.0.0.1:{held.number}')
        settings = w.args(*step, 'parallel.shard=full', f'save.out={w.path("tcp")}')
        with Rank(*settings, env=env) as other:
            rc, out, err = run(*settings, env={**env, 'LWS_WORKER_INDEX': '0'})
            assert rc == 0 and 'each of 2 ranks (tcp)' in out, (out, err)
            assert other.process.wait(60 * SLOW) == 0, other.stderr()
        assert w.model('tcp') == w.model() and w.rows('tcp') == w.rows()


if __name__ == '__main__':
    main(globals())
