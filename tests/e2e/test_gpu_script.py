"""test_gpu_script.py - tools/gpu.sh on a machine without a GPU.

Limits, processes and signals: stubs stand for the driver, nvcc, CMake, compute-sanitizer and quire, and fail as asked. All steps: the real program on the emulated
device, whose kernels do nothing (QUIRE_EMU_IDLE) where only flags, JSON lines and what becomes of them count, and compute where answers do; stubs stand for
nvidia-smi, ncu, compute-sanitizer, PyTorch and `instructions`."""
import itertools
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import PATIENCE, QUIRE, ROOT, STORIES, Skip, jsonl, main

SCRIPT = os.path.join(ROOT, 'tools', 'gpu.sh')
EMULATED = os.environ.get('QUIRE_CUDA_EMU_LIB', '')
COMMAND_S, CHARACTERS = 570, 2000

MACHINE = {
    'nvidia-smi': 'case "$*" in *compute_cap) echo 9.0 ;; *query-gpu*) echo "pretended, 9.0, 580.1" ;; -L) echo "GPU 0: pretended" ;; esac',
    'python3': '''case "$*" in
*gpu_torch.py*) echo '{"case": "linear 1 x 4096 -> 6144, bf16", "median_us": 20.0}'; echo '{"case": "decode", "tok_s": 100.0}' ;;
*"import torch"*) exit 0 ;;
*) exec "$PYTHON" "$@" ;;
esac''',
    'ncu': 'echo "\\"ID\\",\\"Kernel Name\\""; while [ "$1" != --kill ]; do shift; done; shift 2; exec "$@"',
    'compute-sanitizer': 'shift 4; exec "$@"',
}
STUBS = {
    **MACHINE,
    'nvcc': 'while [ $# -gt 1 ]; do [ "$1" != -o ] || cp "$STUBS/quire" "$2"; shift; done; echo nvcc',
    'python3': '''case "$*" in *gpu_results.py*) exec "$PYTHON" "$@" ;; *gpu_torch.py*) echo torch went on ;; *cublasLt.h*) echo /wheels/cu13 ;; -c*) exit 0 ;;
*) echo "same tokens" ;; esac''',
    'cmake': '''case "$1" in
--version) echo cmake ;;
--build) [ "$FAKE" != build ] || { echo "few.cu(12): error: no such thing"; for i in 1 2 3 4 5 6 7 8; do echo "note $i"; done; exit 1; }
    cp "$STUBS/quire" "$2/quire"; cp "$STUBS/quire" "$2/device_check"; : >"$2/libquire_cuda.so" ;;
*) echo "cmake $*" >>"$STUBS/../calls" ;;
esac''',
    'compute-sanitizer': '''[ "$FAKE" != refused ] || { echo "========= Error: Device not supported."; exit 1; }
tool=$2; shift 4; "$@"
[ "$FAKE" != "$tool" ] || { echo "========= Invalid __global__ write of size 4 bytes"; exit 9; }''',
    'quire': '''echo "$* $QUIRE_CUDA_GRAPHS" >>"$STUBS/../calls"
case "$FAKE:$*" in
graphs:generate*|graphs:bench?throughput*) [ -n "${QUIRE_CUDA_GRAPHS:-}" ] || { echo "quire: an illegal memory access was encountered" >&2; exit 134; } ;;
wrong:--device*attention) echo "WRONG    attention: 3 rows 1.0 of 0.1"; exit 7 ;;
flag:*--large*) echo "quire device_check: unknown flag --large; --help lists the known ones" >&2; exit 2 ;;
fell:*--time*--only?attention*) echo "quire: cuda: wgmma attention of heads of 128 differs from mma.sync by 0.5: mma.sync is used" >&2 ;;
fell:*--only?linear*) echo "FP8 falls back to own kernels: 2 of 7 products of many rows"; echo "no cuBLASLt algorithm has own's bits: 3 of 9 kinds of bf16 products" ;;
fell:bench?throughput*) echo '{"case":"ways","by_library":5,"by_wgmma":0,"fp8":2,"fp8_own":1,"bf16_kinds":4,"bf16_unlike":4}' ;;
hang:--device*attention) [ -n "${QUIRE_CUDA_HOPPER:-}" ] || { trap "" TERM; sleep $LONG & timeout 900 sleep $LONG; wait; } ;;
loud:--device*attention) head -c 5000000 /dev/zero | tr '\\\\0' x; echo; echo "error: at the end"; exit 1 ;;
memory:bench?throughput*/llama-3.1-8b?*) echo "quire: cudaMalloc: out of memory" >&2; exit 1 ;;
disk:bench?make-model*) echo "quire: no space left on device" >&2; exit 1 ;;
esac
while [ $# -gt 1 ]; do
    [ "$1" != --json ] || [ ! -d "$(dirname "$2")" ] || echo '{"isa":"cuda","case":"few"}' >"$2"
    [ "$1" != --out ] || mkdir -p "$2"
    shift
done''',
}


RUNS = itertools.count()


class Run:
    """A call of gpu.sh: exit status, what it printed, word and reason of each step, log.txt, rows of results.jsonl. With real: real programs, and these settings."""

    def __init__(self, fake, *steps, pack='-', seconds=300, limit=20, ends_after=None, real=None):
        long = f'{os.getpid() + 5000}.{100 + next(RUNS)}'  # seconds that only this run's processes sleep
        with tempfile.TemporaryDirectory(prefix='8b-make-model-generate-') as d:  # what looks for words anywhere in a path fails every time, not once in 200 runs
            stubs = os.path.join(d, 'bin')
            os.mkdir(stubs)
            for name, body in (STUBS if real is None else MACHINE).items():
                with open(os.path.join(stubs, name), 'w') as f:
                    f.write('#!/bin/bash\n' + body + '\n')
                os.chmod(os.path.join(stubs, name), 0o755)
            clean = {k: v for k, v in os.environ.items() if not k.startswith(('QUIRE_CUDA_', 'QUIRE_GPU_', 'QUIRE_EMU_'))}  # that of ctest has some
            env = {**clean, 'FAKE': fake, 'LONG': long, 'STUBS': stubs, 'PYTHON': sys.executable, 'PATH': stubs + ':' + os.environ['PATH'],
                   'QUIRE_GPU_BUILD': os.path.join(d, 'build'), 'QUIRE_GPU_MODELS': os.path.join(d, 'models'), 'QUIRE_GPU_SECONDS': str(seconds),
                   'QUIRE_GPU_LIMIT': str(limit), **(real or {})}
            read = lambda name: open(os.path.join(d, name)).read() if os.path.exists(os.path.join(d, name)) else ''
            began = time.monotonic()
            p = subprocess.Popen([SCRIPT, os.path.join(d, 'out'), pack, *steps], env=env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
            while ends_after and p.poll() is None:
                time.sleep(0.2)
                if ends_after in read('out/summary.txt'):
                    p.send_signal(signal.SIGTERM)
                    break
            self.printed = p.communicate(timeout=60 * PATIENCE)[0]
            self.status, self.seconds = p.returncode, time.monotonic() - began
            self.log, self.calls = read('out/log.txt'), read('calls')
            self.rows = [json.loads(line) for line in read('out/results.jsonl').splitlines()]
            self.lines = [re.match(r'(\S+) +(\S.*?) +(\d+) s  (.*)$', line).groups() for line in read('out/summary.txt').splitlines()]
            self.words = {name: word for name, word, _, _ in self.lines if word != 'fell back'}
            self.fell_back = {name: why for name, word, _, why in self.lines if word == 'fell back'}
            self.why = {name: why for name, _, _, why in self.lines}
            self.files = sorted(os.listdir(os.path.join(d, 'out'))) if os.path.isdir(os.path.join(d, 'out')) else []
            self.tables = ''
            if real is not None:
                self.tables = subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'gpu_results.py'), os.path.join(d, 'out')], capture_output=True, text=True,
                                             check=True).stdout
            end = time.monotonic() + 10  # what was killed may need a processor to end
            while True:
                everyone = subprocess.run(['ps', '-eo', 'args'], capture_output=True, text=True).stdout
                self.left = [line for line in everyone.splitlines() if line == f'sleep {long}' or os.path.join(d, 'bin') in line]
                if not self.left or time.monotonic() > end:
                    break
                time.sleep(0.1)


def plan():
    """Command, step and limit of each line of the script's table."""
    with open(SCRIPT) as f:
        table = re.search(r"^plan='\n(.*?)^'", f.read(), re.M | re.S).group(1)
    return [(int(line.split()[0]), line.split()[1], int(line.split()[2])) for line in table.splitlines()]


def test_the_limits_of_a_command_fit_ten_minutes_and_its_text_is_short():
    for command in (1, 2, 3):
        limits = [limit for c, _, limit in plan() if c == command]
        assert 0 < sum(limits) <= COMMAND_S, (command, sum(limits))
    with open(os.path.join(ROOT, 'docs', 'operations.md')) as f:
        commands = re.findall(r'^bash tools/gpu\.sh \S+ \S+ .*$', f.read(), re.M)
    assert [line.split()[-1] for line in commands] == ['1', '2', '3'] and all(len(line) < CHARACTERS for line in commands), commands


def test_all_steps_run_where_nothing_fails():
    r = Run('nothing')
    assert r.status == 0 and set(r.words.values()) == {'ok', 'skipped'}, (r.status, r.words)
    assert [k for k, v in r.words.items() if v == 'skipped'] == ['ranks'] and '1 GPU visible' in r.why['ranks'], r.lines
    assert set(r.words) == {step for _, step, _ in plan()} | {'build', 'models'}, r.words
    assert len(r.files) <= 8, r.files


def test_a_build_that_fails_is_shown_and_keeps_back_only_what_needs_it():
    r = Run('build', 'ops-rows', 'instructions', 'torch-kern', 'kern-rows')
    assert r.status == 3 and r.words['build'] == 'FAILED 1' and r.words['ops-rows'] == r.words['kern-rows'] == 'not built', r.words
    assert r.words['torch-kern'] == r.words['instructions'] == 'ok', r.words
    assert 'error: no such thing' in r.printed and 'note 1' in r.log, r.printed


def test_what_needs_no_build_comes_before_it_and_what_starts_is_not_built():
    r = Run('nothing', 'ops-rows', 'instructions')
    assert [name for name, *_ in r.lines] == ['instructions', 'build', 'ops-rows'], r.lines
    r = Run('nothing', 'instructions', 'facts')
    assert set(r.words) == {'instructions', 'facts'}, r.words


def test_a_folder_of_packed_programs_that_is_missing_is_named():
    r = Run('nothing', '1', pack='/nowhere/at/all')
    assert r.status == 2 and 'no folder /nowhere/at/all' in r.printed, r.printed


def test_packages_and_cublas_of_wheels_are_both_said_to_cmake():
    with tempfile.TemporaryDirectory() as pack:
        os.mkdir(os.path.join(pack, 'usr'))
        r = Run('nothing', 'ops-rows', pack=pack)
        assert r.words['build'] == 'ok' and f'-DCMAKE_PREFIX_PATH={pack}/usr' in r.calls and '-DQUIRE_CUDA_MORE=/wheels/cu13' in r.calls, r.calls


def test_a_wrong_kernel_is_named_and_the_others_are_looked_at():
    r = Run('wrong', 'ops-attention', 'ops-rows', 'ops-attention-mma', 'check')
    assert r.words['ops-attention'] == r.words['ops-attention-mma'] == 'FAILED 7' and r.words['ops-rows'] == r.words['check'] == 'ok', r.words
    assert 'WRONG' in r.printed and r.status == 2 and r.why['ops-attention'].startswith('WRONG'), r.printed


def test_an_unknown_flag_is_missing_and_what_is_slower_than_it_should_be_is_not_green():
    r = Run('flag', 'ops-large')
    assert r.words['ops-large'] == 'missing' and r.why['ops-large'] == '--large' and r.status == 1, r.lines
    r = Run('fell', 'kern-attention', 'kern-linear', 'kern-attention-mma')
    assert r.words['kern-attention'] == 'ok' and 'mma.sync is used' in r.fell_back['attention'] and r.status == 3, r.lines  # not where it is switched off
    assert '2 of 7' in r.fell_back['fp8-products'] and '3 of 9' in r.fell_back['same-bits'], r.lines
    r = Run('fell', 'throughput-8b', 'ablations')
    assert '1 of 2' in r.fell_back['fp8-products'] and '4 of 4' in r.fell_back['same-bits'] and r.status == 3, r.lines


def test_a_step_that_hangs_ends_with_all_that_it_began():
    r = Run('hang', 'ops-attention', 'ops-attention-mma', 'check', limit=6)
    assert r.words['ops-attention'] == 'out of time' and r.words['ops-attention-mma'] == 'ok' and r.words['check'] == 'ok', r.words
    assert not r.left, r.left
    assert r.seconds < 40 * PATIENCE, r.seconds


def test_sanitizers_report_by_name_and_one_that_takes_no_device_is_skipped():
    steps = ('memcheck-rows', 'racecheck-rows', 'memcheck-wgmma')
    r = Run('racecheck', *steps)
    assert r.words['racecheck-rows'] == 'FAILED 9' and r.words['memcheck-rows'] == 'ok', r.words
    assert 'racecheck has found something' in r.printed, r.printed
    r = Run('memcheck', *steps)
    assert r.words['memcheck-rows'] == 'FAILED 9' and r.words['memcheck-wgmma'] == 'ok', r.words  # said, not counted
    assert {r.words[s] for r in [Run('refused', *steps)] for s in steps} == {'skipped'}


def test_memory_and_disk_that_are_too_small_are_said():
    r = Run('memory', 'throughput-8b', 'throughput-0.6b')
    assert r.words['throughput-8b'] == 'FAILED 1' and r.words['throughput-0.6b'] == 'ok' and 'out of memory' in r.printed, r.words
    r = Run('disk', 'start')
    assert r.words['start'] == r.words['models'] == 'FAILED 1' and 'the model llama-3.2-1b could not be made' in r.printed, r.printed


def test_what_start_cannot_do_without_is_found_and_kept_for_the_others():
    r = Run('graphs', 'start', 'ops-rows')
    assert r.words['start'] == 'FAILED 1' and r.fell_back['start'] == 'from here on QUIRE_CUDA_GRAPHS=0', r.lines
    assert re.search(r'--only rows 0$', r.calls, re.M), r.calls


def test_time_that_is_over_is_said_and_long_output_is_cut():
    r = Run('nothing', 'instructions', 'ops-rows', seconds=5)
    assert r.words['instructions'] == r.words['ops-rows'] == 'no time', r.words
    r = Run('loud', 'ops-attention')
    assert r.words['ops-attention'] == 'FAILED 1' and 'error: at the end' in r.log and len(r.log) < 2_000_000, len(r.log)


def test_an_unknown_step_is_refused_and_a_signal_leaves_what_is_known():
    r = Run('nothing', 'ops-rows', 'opps')
    assert r.status == 2 and not r.words and 'no step opps' in r.printed, r.printed
    r = Run('hang', 'ops-linear', 'ops-attention', ends_after='ops-linear')
    assert r.status == 1 and r.words['ops-linear'] == 'ok' and r.words.get('gpu.sh') == 'ended by a signal', (r.status, r.lines, r.printed)
    assert not r.left, r.left


# ---- the real program, the emulated device ----

def tiny_model(out):
    """Two layers of random weights, with the bundled model's tokenizer."""
    d, heads, k, f, vocab = 64, 2, 32, 96, 1536
    os.mkdir(out)
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        shutil.copy(os.path.join(ROOT, 'models', 'quire-tiny', name), out)
    with open(os.path.join(out, 'config.json'), 'w') as file:
        json.dump({'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu', 'hidden_size': d, 'num_hidden_layers': 2,
                   'num_attention_heads': heads, 'num_key_value_heads': 1, 'head_dim': k, 'intermediate_size': f, 'vocab_size': vocab,
                   'max_position_embeddings': 1024, 'rms_norm_eps': 1e-5, 'tie_word_embeddings': True, 'torch_dtype': 'bfloat16', 'rope_theta': 10000}, file)
    shapes = {'model.embed_tokens': (vocab, d), 'model.norm': (d,)}
    for i in range(2):
        for name, shape in (('input_layernorm', (d,)), ('post_attention_layernorm', (d,)), ('self_attn.q_proj', (heads * k, d)), ('self_attn.k_proj', (k, d)),
                            ('self_attn.v_proj', (k, d)), ('self_attn.o_proj', (d, heads * k)), ('mlp.gate_proj', (f, d)), ('mlp.up_proj', (f, d)),
                            ('mlp.down_proj', (d, f))):
            shapes[f'model.layers.{i}.{name}'] = shape
    r, header, data = random.Random(1), {}, bytearray()
    for name, shape in shapes.items():
        n, at = shape[0] * (shape[1] if len(shape) > 1 else 1), len(data)
        for _ in range(n):
            data += struct.pack('<f', 1 if len(shape) == 1 else r.gauss(0, 0.1))[2:]  # the upper half: bf16
        header[f'{name}.weight'] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [at, len(data)]}
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(os.path.join(out, 'model.safetensors'), 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + data)


class Packed:
    """A folder as `gpu.sh pack` makes it, and the settings under which the emulated device is the GPU."""

    def __enter__(self):
        if not os.path.exists(EMULATED):
            raise Skip('no emulated device was built (QUIRE_CUDA_EMU_LIB)')
        self.folder = tempfile.TemporaryDirectory()
        d = self.folder.name
        for name in ('quire', 'device_check'):
            os.symlink(os.path.join(os.path.dirname(QUIRE), name), os.path.join(d, name))
        os.symlink(EMULATED, os.path.join(d, 'libquire_cuda.so'))
        with open(os.path.join(d, 'instructions'), 'w') as f:
            f.write('#!/bin/sh\necho "ok        mma.sync and ldmatrix"\n')
        os.chmod(os.path.join(d, 'instructions'), 0o755)
        with open(os.path.join(d, 'packed.txt'), 'w') as f:
            f.write('sources of another day\n')
        tiny_model(os.path.join(d, 'tiny'))
        os.mkdir(os.path.join(d, 'models'))
        if os.path.exists(STORIES):  # two short answers that others computed
            golden = os.path.join(d, 'goldens', 'stories260K')
            shutil.copytree(STORIES, golden, ignore=shutil.ignore_patterns('golden.jsonl'))
            short = sorted((g for g in jsonl(os.path.join(STORIES, 'golden.jsonl')) if g['min_gap'] > 0.01), key=lambda g: len(g['prompt_ids']))[:2]
            os.chmod(golden, 0o755)
            with open(os.path.join(golden, 'golden.jsonl'), 'w') as f:
                f.writelines(json.dumps(g) + '\n' for g in short)
        return d, {'QUIRE_CUDA_LIB': EMULATED, 'QUIRE_EMU_GIB': '12', 'QUIRE_GPU_SMALL': '1', 'QUIRE_GPU_TINY': os.path.join(d, 'tiny'),
                   'QUIRE_GPU_MODELS': os.path.join(d, 'models'),
                   'XDG_CACHE_HOME': os.path.join(d, 'cache'), 'QUIRE_GPU_PATIENCE': '10', 'QUIRE_GPU_SECONDS': '3000', 'QUIRE_GPU_LIMIT': '600'}

    def __exit__(self, *_):
        self.folder.cleanup()


# Commands of other steps, under another setting, for another model or within another tool, and what is PyTorch's alone: stubs run these.
LIKE_OTHERS = {'ops-attention-mma', 'throughput-0.6b', 'train-1.5b', 'racecheck-rows', 'racecheck-generate', 'synccheck-rows',
               'profile-attention', 'profile-back', 'torch-train', 'torch-prompt', 'torch-decode'}


def need_full():
    if not os.environ.get('QUIRE_FULL'):
        raise Skip('a minute on the emulated device: QUIRE_FULL=1, and ./dev check-world')


def test_every_step_knows_its_flags_and_reads_what_the_real_program_prints():
    need_full()
    with Packed() as (pack, settings):
        for name in ('llama-3.1-8b', 'qwen3-8b'):  # one is made by the script; to round its weights to codes takes a processor half a minute
            os.symlink(settings['QUIRE_GPU_TINY'], os.path.join(pack, 'models', name))
        steps = [step for _, step, _ in plan() if os.environ.get('QUIRE_FULL') or step not in LIKE_OTHERS]
        r = Run('nothing', *steps, pack=pack, real=dict(settings, QUIRE_EMU_IDLE='1'))
    # A device whose kernels do nothing is wrong wherever somebody looks, and nowhere else.
    wrong = {'ops-linear', 'ops-attention', 'ops-attention-mma', 'ops-rows', 'ops-large', 'check', 'goldens', 'train', 'memcheck-rows', 'racecheck-rows',
             'synccheck-rows'}
    skipped = {'ranks', 'fits'} | (set() if os.path.exists(STORIES) else {'goldens'})
    for name, word in r.words.items():
        assert name in skipped and word == 'skipped' or word.startswith('FAILED') == (name in wrong), (name, r.lines, r.printed[-4000:])
    assert set(r.words) == set(steps) | {'models'}, r.words  # nothing was built
    assert 'losses' in r.why['train'] and 'differ' in r.why['check'] and ('goldens' in skipped or 'differ' in r.why['goldens']), r.lines
    assert {'packed-program', 'attention'} <= set(r.fell_back) <= {'packed-program', 'attention', 'fp8-products', 'same-bits'}, r.fell_back
    by = {}
    for row in r.rows:
        by.setdefault(row['step'], []).append(row)
    for step in ('kern-attention', 'kern-linear', 'kern-rows', 'kern-attention-mma'):
        assert all(row['median_us'] > 0 and row['case'] for row in by[step]), step
    for step in [s for s in r.words if s.startswith(('throughput-', 'deterministic-'))]:
        cases = {(row['case'], row.get('batch'), row.get('depth')) for row in by[step]}
        assert {('prefill', 1, 0), ('decode', 4, 0)} <= cases and (('probe', None, None) in cases) == (step in ('throughput-1b', 'throughput-8b', 'throughput-0.6b')), cases
    assert len({row['without'] for row in by['ablations']}) == 5, r.rows
    assert any(row['case'] == 'sequences' and row['host_us_per_step'] > 0 for row in by['offline-qwen3-8b']), r.rows
    assert all(row['tokens_per_s'] > 0 for row in by['train-0.5b']), by
    assert re.search(r'^\| RoPE, backward \| 3,500 GB/s \| [\d,.]+ GB/s \| \w+ \|$', r.tables, re.M), r.tables
    assert re.search(r'^\| 8b, decode of 4 \| [\d,.]+ \| \d+ % \|$', r.tables, re.M), r.tables
    assert re.search(r'^\| linear 1 x 4096 -> 6144, bf16 \| .* us \| 20 us \|', r.tables, re.M) and 'without | tok/s' in r.tables, r.tables


def test_steps_that_look_at_answers_find_the_emulated_device_right():
    need_full()
    with Packed() as (pack, settings):
        os.symlink(settings['QUIRE_GPU_TINY'], os.path.join(pack, 'models', 'llama-3.2-1b'))
        r = Run('nothing', 'start', 'ops-rows', 'check', 'goldens', 'memcheck-generate', pack=pack, real=settings)
    expected = 'ok' if os.path.exists(STORIES) else 'skipped'
    assert r.words == {'start': 'ok', 'ops-rows': 'ok', 'check': 'ok', 'goldens': expected, 'memcheck-generate': 'ok'}, (r.lines, r.printed[-4000:])


if __name__ == '__main__':
    main(globals(), at_once=4)
