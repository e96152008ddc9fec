#!/usr/bin/env python3
"""What a server takes while it works: resident memory against `quire plan`, and time from exec to the first token."""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

from lib import QUIRE, ROOT, SLOW, STORIES, Server, Skip, environment, main, need_data, program_seconds, run, until_within

sys.path.insert(0, os.path.join(ROOT, 'tools'))
import random_model


def resident_bytes(pid):
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith('VmRSS'))


def fill_cache(server, n_tokens, prompt_tokens, seed):
    """Different prompts, so that each one leaves its own blocks behind."""
    rng = random.Random(seed)
    for _ in range(0, n_tokens, 16 * prompt_tokens):
        prompts = [[rng.randrange(3, 512) for _ in range(prompt_tokens)] for _ in range(16)]
        status, r = server.post('/v1/completions', {'model': 'stories260K', 'prompt': prompts, 'max_tokens': 4, 'temperature': 0})
        assert status == 200, r


def test_a_server_that_has_used_all_of_its_cache_takes_what_plan_says():
    """The parts that plan computes are exact; what it estimates (connections, stacks, ends of heaps) comes to some 0.3 MiB: within half a MiB and a hundredth. Were only a part left out (weights, step, scratch or tables of a larger model, the cache) or taken twice, it would show."""
    need_data()
    if SLOW > 1:
        raise Skip('a sanitizer keeps memory of its own')
    settings = ['--kv-tokens', '24576', '--max-running', '16']
    rc, out, err = run('plan', '--model', STORIES, '--json', *settings)
    assert rc == 0, err
    plan = json.loads(out)
    parts = ('weight_bytes', 'kv_bytes', 'act_bytes', 'scratch_bytes', 'table_bytes', 'tokenizer_bytes', 'http_bytes', 'program_bytes')
    assert sum(plan[p] for p in parts) == plan['total_bytes'] and all(plan[p] > 0 for p in parts), plan
    with Server(*settings) as s:
        fill_cache(s, 24576 + 4096, 480, seed=20261121)
        mib = 2 ** 20
        allowed = 0.5 * mib + plan['total_bytes'] / 100
        # What reading the calls has left in the heap goes back some 0.1 s behind the last one; later where others work.
        until_within(allowed, lambda: abs(resident_bytes(s.process.pid) - plan['total_bytes']), tries=50)
        rss = resident_bytes(s.process.pid)
    print(f"   planned {plan['total_bytes'] / mib:.1f} MiB, {plan['kv_bytes'] / mib:.1f} of it cache; resident {rss / mib:.1f} MiB")
    assert abs(rss - plan['total_bytes']) <= allowed, plan


SHAPE = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu', 'hidden_size': 768, 'num_hidden_layers': 12,
         'num_attention_heads': 12, 'num_key_value_heads': 4, 'head_dim': 64, 'intermediate_size': 2048, 'vocab_size': 8192,
         'max_position_embeddings': 1024, 'rms_norm_eps': 1e-5, 'tie_word_embeddings': False, 'eos_token_id': 8191, 'torch_dtype': 'bfloat16',
         'rope_theta': 10000.0}
BUNDLED = os.path.join(ROOT, 'models', 'quire-tiny')
EXPERTS = {**SHAPE, 'architectures': ['MixtralForCausalLM'], 'model_type': 'mixtral', 'num_local_experts': 8, 'num_experts_per_tok': 2,
           'num_hidden_layers': 3, 'intermediate_size': 1024}
# What it is called, shape, stored as, settings, and whether every run looks at it or only one with QUIRE_FULL=1.
CASES = [
    ('bf16', SHAPE, 'bf16', [], False), ('int8', SHAPE, 'bf16', ['--quantize', 'int8'], False), ('int4', SHAPE, 'bf16', ['--quantize', 'int4'], False),
    ('w4a16', SHAPE, 'bf16', ['--quantize', 'w4a16'], False), ('Q8_0', SHAPE, 'Q8_0', [], False), ('Q4_0', SHAPE, 'Q4_0', [], False),
    ('Q2_K', SHAPE, 'Q2_K', [], False), ('Q3_K', SHAPE, 'Q3_K', [], False),
    ('Q4_K and Q6_K', SHAPE, 'Q4_K', [], True), ('FP8', SHAPE, 'fp8', [], False), ('GPTQ', SHAPE, 'gptq', [], False), ('AWQ', SHAPE, 'awq', [], False),
    ('experts', EXPERTS, 'bf16', [], False), ('experts of Q4_K', EXPERTS, 'Q4_K', [], False),
    ('int8 keys and values', SHAPE, 'bf16', ['--kv-cache-dtype', 'int8'], False),
    ('adapters', SHAPE, 'Q8_0', ['--lora', 'a={0}/adapter', '--lora-slots', '4', '--lora-rank-max', '64'], False),
    ('a packed copy, mapped', SHAPE, 'fp8', ['--cache-packed', '{0}/packed'], False),
    ('a packed copy of Q4_0, mapped', SHAPE, 'Q4_0', ['--cache-packed', '{0}/packed'], True),
    ('the bundled model', None, None, [], True),
    ('each of two processes', SHAPE, 'bf16', ['--tensor-parallel', '2', '--threads', '1'], False),
]


def full_batch(s, name):
    """While two longer prompts are computed, 256 rows in a step, many short ones arrive, of which 64 at once then end in logits: as many as plan was asked
    about. The cache's pages are there from the start."""
    prompts = [[4] * 300, [5] * 300] + [[3 + i, 10, 11, 12] for i in range(100)]
    status, r = s.post('/v1/completions', {'model': name, 'prompt': prompts, 'max_tokens': 1, 'temperature': 0, 'ignore_eos': True})
    assert status == 200 and len(r['choices']) == len(prompts), r


def planned_and_used(folder, shape, kind, settings):
    name = 'm' + ('' if kind in random_model.SCHEMES else '.gguf')
    model = os.path.join(folder, name) if shape else BUNDLED
    if shape:
        random_model.write(model, shape, kind, 'Q6_K' if kind == 'Q4_K' else None)
    settings = ['--kv-bytes', '32MiB', '--max-step-tokens', '256', '--max-chunk-tokens', '128', '--itl-goal', '0', *(x.format(folder) for x in settings)]
    if '--lora' in settings:
        random_model.write_adapter(os.path.join(folder, 'adapter'), shape, 16)
    if '--cache-packed' in settings:
        rc, _, err = run('generate', '--model', model, '--prompt-ids', '5', '--max-tokens', '1', *settings[-2:])
        assert rc == 0 and len(os.listdir(os.path.join(folder, 'packed'))) == 1, err
    rc, out, err = run('plan', '--model', model, '--json', *settings)
    assert rc == 0, err
    with Server(*settings, model=model) as s:
        full_batch(s, 'a' if '--lora' in settings else 'm' if shape else os.path.basename(BUNDLED))
        return json.loads(out)['total_bytes'], resident_bytes(s.process.pid)


def test_a_full_batch_takes_what_plan_says_within_1_percent_whatever_the_weights_are_stored_as():
    """plan adds up what is allocated; here that is held against what the system says the process has. What plan only estimates (connections, lists, pages of
    libraries) comes to 0.3 MiB, which for models below 60 MiB is much of a percent: that is left beside it."""
    if SLOW > 1:
        raise Skip('a sanitizer keeps memory of its own')
    off = {}
    for what, shape, kind, settings, always in CASES:
        if not always and not os.environ.get('QUIRE_FULL'):
            continue
        with tempfile.TemporaryDirectory() as d:
            planned, used = planned_and_used(d, shape, kind, settings)
        print(f'   {what}: planned {planned / 2 ** 20:.1f} MiB, resident {used / 2 ** 20:.1f} ({100 * (used / planned - 1):+.2f} %)')
        if abs(used - planned) > 0.01 * planned + 0.3 * 2 ** 20:
            off[what] = (planned, used)
    assert not off, off


def plan_within(kib, *settings):
    """What plan says of stories260K where ulimit -v leaves so much."""
    limited = ['/bin/sh', '-c', f'ulimit -v {kib}; exec "$@"', 'sh', QUIRE, 'plan', '--model', STORIES, '--threads', '1', *settings]
    p = subprocess.run(limited, capture_output=True, env=environment(None), check=False, timeout=60 * SLOW)
    assert p.returncode == 0, (settings, p.stderr)
    return p.stdout.decode()


def test_the_largest_cache_that_plan_names_fits_with_its_records():
    """Records of blocks grow with the cache (they were counted as those of the cache that was planned), and a 64th of the memory stays the system's."""
    need_data()
    if 'asan' in QUIRE:
        raise Skip('asan takes terabytes of addresses')
    first = json.loads(plan_within(400000, '--json', '--kv-tokens', '1024'))
    most = first['kv_tokens_max']
    second = json.loads(plan_within(400000, '--json', '--kv-tokens', str(most)))
    assert second['kv_bytes'] == most * first['kv_token_bytes'] and second['table_bytes'] > first['table_bytes'] + 2 ** 20, second
    rest = first['total_bytes'] - first['kv_bytes'] - first['table_bytes']
    free = first['available_bytes'] * 63 // 64 - rest - second['kv_bytes'] - second['table_bytes']
    assert 0 <= free < 2 ** 20, (free, first, second)   # the next power of two of a table is less
    assert 'note ' not in plan_within(400000, '--kv-tokens', str(most))
    assert '\nnote       that is more than there is: ' in plan_within(400000, '--kv-tokens', str(most + most // 40))


def test_settings_that_a_refusal_names_fit_and_one_more_does_not():
    need_data()
    if 'asan' in QUIRE:
        raise Skip('asan takes terabytes of addresses')

    def plan(*settings):
        limited = ['/bin/sh', '-c', 'ulimit -v 200000; exec "$@"', 'sh', QUIRE, 'plan', '--model', STORIES, '--threads', '1', *settings]
        p = subprocess.run(limited, capture_output=True, env=environment(None), check=False, timeout=60 * SLOW)
        return p.returncode, p.stderr.decode()

    few = ['--max-waiting', '1', '--kv-tokens', '512', '--max-len', '512']
    rc, err = plan('--max-step-tokens', '65536', *few)
    named = re.search(r'what fits is .*--max-step-tokens (\d+) --max-running 64 ', err)
    assert rc == 5 and named, err
    rows = int(named[1])
    for n, status in ((rows - rows // 100, 0), (rows + rows // 100, 5)):  # what else the process takes moves by a little
        rc, err = plan('--max-step-tokens', str(n), *few)
        assert rc == status, (rows, n, err)
    rc, err = plan('--kv-tokens', '1000000')
    named = re.search(r'--max-len 512 --kv-tokens (\d+)', err)
    assert rc == 5 and named and int(named[1]) % 16 == 0, err
    most = int(named[1])
    assert plan('--kv-tokens', str(most - most // 100))[0] == 0 and plan('--kv-tokens', str(most + most // 100))[0] == 5, most


def start(model, n):
    """Seconds from exec to ready and to the first token, the best of n."""
    ready, first = [], []
    for _ in range(n):
        with Server(model=model, wait=False) as s:
            s.until_ready(poll_s=0.001)
            ready.append(time.monotonic() - s.started)
            events = s.stream('/v1/completions', {'model': os.path.basename(model), 'prompt': [5, 6, 7, 8, 9], 'max_tokens': 4, 'ignore_eos': True})
            next(events)
            first.append(time.monotonic() - s.started)
            for _ in events:
                pass
    print(f'   {os.path.basename(model)}: ready after {min(ready) * 1e3:.1f} ms, first token after {min(first) * 1e3:.1f} ms (the best of {n})')
    return min(first)


def test_a_small_model_says_its_first_token_within_300_ms_of_exec():
    """It takes some 15 ms on an idle machine of two cores; on a slow one 60 times what the program takes to say its version are granted."""
    need_data()
    limit = max(0.3 * SLOW, 60 * program_seconds())
    first = until_within(limit, lambda: start(STORIES, 3))
    assert first <= limit, (first, limit)


def test_a_model_of_135M_says_its_first_token_within_a_second_of_exec():
    """The goal is 0.3 s and the usual figure 0.09 s with the file in the page cache; ten times that is left for neighbours."""
    if not os.environ.get('QUIRE_FULL'):
        raise Skip('makes a model of 270 MB: set QUIRE_FULL=1')
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'm135')
        rc, _, err = run('bench', 'make-model', '--like', 'smollm2-135m', '--out', model)
        assert rc == 0, err
        first = until_within(0.9 * SLOW, lambda: start(model, 5))
    assert first <= 0.9 * SLOW, first


def test_plan_counts_mapped_files_where_ulimit_v_does():
    if not os.environ.get('QUIRE_FULL'):
        raise Skip('makes a model of 270 MB: set QUIRE_FULL=1')
    if 'asan' in QUIRE:
        raise Skip('asan takes terabytes of addresses')
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'm135')
        assert run('bench', 'make-model', '--like', 'smollm2-135m', '--out', model)[0] == 0
        # Room for the file or the packed weights; for both, but not for a thread's stack and heap beside them (72 MiB); for all of it.
        for kib, status in ((500000, 5), (600000, 5), (4000000, 0)):
            for args in (['plan', '--model', model], ['generate', '--model', model, '--prompt-ids', '1', '-n', '1']):
                limited = ['/bin/sh', '-c', f'ulimit -v {kib}; exec "$@"', 'sh', QUIRE, *args, '--threads', '1']
                p = subprocess.run(limited, capture_output=True, env=environment(None), check=False, timeout=120 * SLOW)
                assert p.returncode == status, (kib, args, p.returncode, p.stderr)
        # The largest cache that plan names can be had while the file is mapped, too.
        limited = ['/bin/sh', '-c', 'ulimit -v 1500000; exec "$@"', 'sh', QUIRE]
        plan = subprocess.run([*limited, 'plan', '--model', model, '--threads', '1', '--json'], capture_output=True, env=environment(None), check=True)
        most = str(json.loads(plan.stdout)['kv_tokens_max'])
        p = subprocess.run([*limited, 'generate', '--model', model, '--threads', '1', '--prompt-ids', '1', '-n', '1', '--kv-tokens', most],
                           capture_output=True, env=environment(None), check=False, timeout=120 * SLOW)
        assert p.returncode == 0 and int(most) > 16384, (most, p.stderr)


if __name__ == '__main__':
    main(globals())
