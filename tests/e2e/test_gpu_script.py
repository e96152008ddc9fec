"""test_gpu_script.py - tools/gpu.sh on a machine that has nothing: stubs stand for the driver, nvcc, CMake, compute-sanitizer and quire, and fail as asked."""
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import PATIENCE, ROOT, main

STUBS = {
    'nvidia-smi': 'case "$*" in *compute_cap*) echo 9.0 ;; -L) echo "GPU 0: pretended" ;; esac',
    'nvcc': 'while [ $# -gt 1 ]; do [ "$1" != -o ] || cp "$STUBS/quire" "$2"; shift; done; echo nvcc',
    'python3': 'case "$*" in *gpu_torch.py*) echo torch went on ;; *cublasLt.h*) echo /wheels/cu13 ;; -c*) exit 0 ;; *) echo "same tokens" ;; esac',
    'cmake': '''case "$1" in
--version) echo cmake ;;
--build) [ "$FAKE" != build ] || { echo "few.cu(12): error: no such thing"; for i in 1 2 3 4 5 6 7 8; do echo "note $i"; done; exit 1; }
    cp "$STUBS/quire" "$2/quire"; : >"$2/libquire_cuda.so" ;;
*) echo "cmake $*" >>"$STUBS/../calls" ;;
esac''',
    'compute-sanitizer': '''[ "$FAKE" != refused ] || { echo "========= Error: Device not supported."; exit 1; }
tool=$2; shift 4; "$@"
[ "$FAKE" != "$tool" ] || { echo "========= Invalid __global__ write of size 4 bytes"; exit 9; }''',
    'quire': '''echo "$* $QUIRE_CUDA_GRAPHS" >>"$STUBS/../calls"
case "$FAKE:$*" in
graphs:generate*|graphs:bench?throughput*) [ -n "${QUIRE_CUDA_GRAPHS:-}" ] || { echo "quire: an illegal memory access was encountered" >&2; exit 134; } ;;
wrong:*--check*attention) echo "WRONG    attention: 3 rows 1.0 of 0.1"; exit 7 ;;
hang:*--check*attention) [ -n "${QUIRE_CUDA_HOPPER:-}" ] || { trap "" TERM; sleep $LONG & timeout 900 sleep $LONG; wait; } ;;
loud:*--check*attention) head -c 5000000 /dev/zero | tr '\\\\0' x; echo; echo "error: at the end"; exit 1 ;;
memory:bench?throughput*/llama-3.1-8b?*) echo "quire: cudaMalloc: out of memory" >&2; exit 1 ;;
disk:bench?make-model*) echo "quire: no space left on device" >&2; exit 1 ;;
esac
while [ $# -gt 1 ]; do [ "$1" != --json ] || [ ! -d "$(dirname "$2")" ] || echo "[]" >"$2"; shift; done''',
}


RUNS = itertools.count()


class Run:
    """A call of gpu.sh: exit status, what it printed, word of each step, results.txt."""

    def __init__(self, fake, *steps, prefix='-', seconds=300, limit=20, ends_after=None):
        long = f'{os.getpid() + 5000}.{100 + next(RUNS)}'  # seconds that only this run's processes sleep
        with tempfile.TemporaryDirectory(prefix='8b-make-model-generate-') as d:  # what looks for words anywhere in a path fails every time, not once in 200 runs
            stubs = os.path.join(d, 'bin')
            os.mkdir(stubs)
            for name, body in STUBS.items():
                with open(os.path.join(stubs, name), 'w') as f:
                    f.write('#!/bin/bash\n' + body + '\n')
                os.chmod(os.path.join(stubs, name), 0o755)
            clean = {k: v for k, v in os.environ.items() if not k.startswith('QUIRE_CUDA_')}  # that of ctest has some
            env = dict(clean, FAKE=fake, LONG=long, STUBS=stubs, PATH=stubs + ':' + os.environ['PATH'], QUIRE_GPU_BUILD=os.path.join(d, 'build'),
                       QUIRE_GPU_SECONDS=str(seconds), QUIRE_GPU_LIMIT=str(limit))
            read = lambda name: open(os.path.join(d, name)).read() if os.path.exists(os.path.join(d, name)) else ''
            began = time.monotonic()
            p = subprocess.Popen([os.path.join(ROOT, 'tools', 'gpu.sh'), os.path.join(d, 'out'), prefix, *steps], env=env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
            while ends_after and p.poll() is None:
                time.sleep(0.2)
                if ends_after in read('out/summary.txt'):
                    p.send_signal(signal.SIGTERM)
                    break
            self.printed = p.communicate(timeout=60 * PATIENCE)[0]
            self.status, self.seconds = p.returncode, time.monotonic() - began
            self.results, self.calls = read('out/results.txt'), read('calls')
            self.words = dict(re.match(r'(\S+) +(\S.*?) +\d+ s$', line).groups() for line in read('out/summary.txt').splitlines())
            end = time.monotonic() + 10  # what was killed may need a processor to end
            while True:
                everyone = subprocess.run(['ps', '-eo', 'args'], capture_output=True, text=True).stdout
                self.left = [line for line in everyone.splitlines() if line == f'sleep {long}']
                if not self.left or time.monotonic() > end:
                    break
                time.sleep(0.1)


def test_all_steps_run_where_nothing_fails():
    r = Run('nothing')
    assert r.status == 0 and set(r.words.values()) == {'ok', 'skipped'}, (r.status, r.words)
    assert [k for k, v in r.words.items() if v == 'skipped'] == ['ranks'], r.words


def test_a_build_that_fails_is_shown_and_keeps_back_only_what_needs_it():
    r = Run('build', 'build', 'instructions', 'ops', 'torch')
    assert r.status == 1 and r.words['build'] == 'failed 1' and r.words['fits'] == r.words['ops-rows'] == 'not built', r.words
    assert r.words['torch'] == r.words['instructions'] == 'ok', r.words
    assert 'error: no such thing' in r.printed and 'note 1' in r.results, r.printed


def test_a_folder_of_packages_that_is_missing_is_named():
    r = Run('nothing', 'build', prefix='/nowhere/at/all')
    assert r.words['build'] == 'failed 1' and '/nowhere/at/all/usr' in r.printed, r.printed


def test_packages_and_cublas_of_wheels_are_both_said_to_cmake():
    with tempfile.TemporaryDirectory() as prefix:
        os.mkdir(os.path.join(prefix, 'usr'))
        r = Run('nothing', 'build', prefix=prefix)
        assert r.words['build'] == 'ok' and f'-DCMAKE_PREFIX_PATH={prefix}/usr' in r.calls and '-DQUIRE_CUDA_MORE=/wheels/cu13' in r.calls, r.calls


def test_a_wrong_kernel_is_named_and_the_others_are_looked_at():
    r = Run('wrong', 'build', 'ops', 'check')
    assert r.words['ops-attention'] == 'failed 7' and r.words['ops-rows'] == 'ok' and r.words['check'] == 'ok', r.words
    assert 'WRONG' in r.printed and r.status == 2, r.printed  # with mma.sync as well


def test_a_step_that_hangs_ends_with_all_that_it_began():
    r = Run('hang', 'build', 'ops', 'check', limit=6)
    assert r.words['ops-attention'] == 'timed out' and r.words['ops-attention-mma'] == 'ok' and r.words['check'] == 'ok', r.words
    assert not r.left, r.left
    assert r.seconds < 40 * PATIENCE, r.seconds


def test_sanitizers_report_by_name_and_one_that_takes_no_device_is_skipped():
    r = Run('racecheck', 'build', 'sanitizer')
    assert r.words['sanitizer-racecheck-rows'] == 'failed 9' and r.words['sanitizer-memcheck-rows'] == 'ok', r.words
    assert r.words['sanitizer-racecheck-wgmma'] == 'ok' and 'racecheck has found something' in r.printed, r.printed  # said, not counted
    assert {v for k, v in Run('refused', 'build', 'sanitizer').words.items() if 'sanitizer' in k} == {'skipped'}


def test_memory_and_disk_that_are_too_small_are_said():
    r = Run('memory', 'build', 'throughput')
    assert r.words['throughput-llama-3.1-8b'] == 'failed 1' and r.words['throughput-qwen3-0.6b'] == 'ok' and 'out of memory' in r.printed, r.words
    r = Run('disk', 'build', 'start')
    assert r.words['start'] == 'failed 1' and 'the model llama-3.2-1b could not be made' in r.printed, r.printed


def test_what_start_cannot_do_without_is_found_and_kept_for_the_others():
    r = Run('graphs', 'build', 'start', 'ops')
    assert r.words['start'] == 'failed 1' and 'from here on with QUIRE_CUDA_GRAPHS=0' in r.results, r.results
    assert re.search(r'--only rows 0$', r.calls, re.M), r.calls


def test_time_that_is_over_is_said_and_long_output_is_cut():
    r = Run('nothing', 'build', 'ops', seconds=5)
    assert r.words['build'] == 'no time' and r.words['ops-rows'] == 'not built', r.words
    r = Run('loud', 'build', 'ops')
    assert r.words['ops-attention'] == 'failed 1' and 'error: at the end' in r.results and len(r.results) < 2_000_000, len(r.results)


def test_an_unknown_step_is_refused_and_a_signal_leaves_what_is_known():
    r = Run('nothing', 'build', 'opps')
    assert r.status == 2 and not r.words and 'no step opps' in r.printed, r.printed
    r = Run('hang', 'build', 'ops', ends_after='ops-linear')
    assert r.status == 1 and r.words['build'] == 'ok' and r.words['gpu.sh'] == 'ended by a signal', r.words
    assert not r.left, r.left


if __name__ == '__main__':
    main(globals(), at_once=4)
