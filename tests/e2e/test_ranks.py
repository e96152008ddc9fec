#!/usr/bin/env python3
"""quire train by several processes: the bytes of one, interrupted, killed, and what each takes of the memory."""
import json
import os
import shutil
import signal
import subprocess
import time

from lib import QUIRE, SLOW, Skip, gone, main
from test_train import CONFIG, World, memory_of

STEP = ['batch.micro=4', 'batch.leaves=4']
UNSAID = ['batch.micro=4']  # a leaf for each rank it begins with
SHARDS = ['none', 'optimizer', 'gradients', 'full']


def children_of(pid):
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as f:
        return [int(x) for x in f.read().split()]


def test_two_processes_give_the_bytes_of_one_and_one_goes_on_where_they_stopped():
    with World() as w:
        w.train(*STEP)
        for shard in ('none', 'full'):
            w.train(*STEP, f'parallel.shard={shard}', f'save.out={w.path(shard)}', flags=['--ranks', '2'])
            assert w.model(shard) == w.model() and w.rows(shard) == w.rows(), shard
        w.train(*UNSAID, f'save.out={w.path("part")}', 'steps=30', 'save.every=5', 'optimizer.schedule=constant', 'parallel.shard=gradients', flags=['--ranks', '2'])
        err = w.interrupted(*UNSAID, 'steps=30', 'optimizer.schedule=constant', 'parallel.shard=optimizer', out='stopped', flags=['--ranks', '2'])
        assert err.count('stopping behind this step') == 1, err
        last = max(row['step'] for row in w.rows('stopped'))
        assert 3 <= last < 30, last
        w.train(*UNSAID, f'save.out={w.path("stopped")}', 'steps=30', 'optimizer.schedule=constant', flags=['--resume'])
        assert w.model('stopped') == w.model('part') and w.rows('stopped') == w.rows('part')


def test_processes_of_mpirun_give_the_bytes_of_one():
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(os.path.dirname(QUIRE), 'libquire_mpi.so')):
        raise Skip('no mpirun, or no libquire_mpi.so beside the program')
    with World() as w:
        w.train(*STEP)
        command = ['mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-n', '2', QUIRE]
        env = {**os.environ, 'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}  # Open MPI's own
        p = subprocess.run(command + w.args(*STEP, 'parallel.shard=full', f'save.out={w.path("mpi")}'), capture_output=True, timeout=120 * SLOW, env=env,
                           check=False)
        out = p.stdout.decode()
        assert p.returncode == 0, (out, p.stderr.decode())
        assert 'each of 2 ranks (mpi)' in out and out.count('step 12/12') == 1 and '\x1b' not in out, out
        assert w.model('mpi') == w.model() and w.rows('mpi') == w.rows()


def test_a_process_that_is_killed_ends_the_run_with_its_name():
    with World() as w:
        for victim in (0, 1):
            process = w.start(*STEP, 'steps=100000', f'save.out={w.path(str(victim))}', flags=['--ranks', '2'])
            w.until_step(process, 2, str(victim))
            child, = children_of(process.pid)
            began = time.monotonic()
            os.kill(child if victim else process.pid, signal.SIGKILL)
            err = process.communicate(timeout=120 * SLOW)[1].decode()
            while not gone(child) and time.monotonic() - began < 60 * SLOW:
                time.sleep(0.01)
            assert gone(child), 'a rank is left'
            if victim:
                assert process.returncode == 1 and 'quire train: rank 1' in err and 'signal 9' in err, (process.returncode, err)


def test_what_a_rank_refuses_is_said_once():
    with World() as w:
        process = w.start('batch.micro=3', flags=['--ranks', '2'])
        err = process.communicate(timeout=120 * SLOW)[1].decode()
        assert process.returncode == 2 and err.count('\n') == 1 and 'batch.micro: 3, which 2 leaves (one for each rank) do not divide' in err, err


def test_each_process_takes_what_the_plan_says_within_one_percent_and_less_of_what_is_cut():
    """Windows between ranks are planned as a whole; how much of them is used depends on the calls, so that much less may be taken (of a model of a size that
    anybody would cut it is nothing)."""
    if SLOW > 1:
        raise Skip('a sanitizer keeps memory of its own')
    with World() as w:
        with open(w.path('config.json'), 'w', encoding='utf-8') as f:
            json.dump({**CONFIG, 'vocab_size': 4096, 'hidden_size': 256, 'intermediate_size': 1024, 'num_hidden_layers': 4}, f)
        w.prepare('long', ' '.join(f'The cat number {i} sat on the mat.' for i in range(200)))
        settings = [f'data.train={w.path("long")}', 'data.sequence=256', 'batch.tokens=256', 'batch.sequences=2', 'steps=2', 'eval.every=0', 'batch.micro=2']
        before = float('inf')
        for shard in SHARDS:
            rows = memory_of(w.train(*settings, f'parallel.shard={shard}', f'save.out={w.path(shard)}', flags=['--memory', '--ranks', '2']))
            planned, seen = rows['together, and the process (VmHWM)']
            print(f'   {shard}: planned {planned / 2 ** 20:.1f} MiB, taken {100 * (seen / planned - 1):+.2f} %')
            windows = rows['what travels between ranks'][0]
            assert -0.01 * planned - windows <= seen - planned <= 0.01 * planned, (shard, rows)
            assert planned < before, (shard, planned, before)
            before = planned


if __name__ == '__main__':
    main(globals())
