#!/usr/bin/env python3
"""The subcommands as scripts use them."""
import fcntl
import glob
import json
import math
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

from lib import DATA, QUIRE, ROOT, SLOW, STORIES, Skip, environment, jsonl, levels, main, need_data, release_only, run, run_lines


def test_tokenize_and_detokenize_answer_every_vector_of_a_tokenizer():
    need_data()
    names = ('gpt2', 'llama-2', 'mistral-v0.1', 'qwen2.5', 'llama-3.2')
    for name in names if os.environ.get('QUIRE_FULL') else names[1:2]:  # tokenizer/test_vectors has all of them
        model = os.path.join(DATA, 'tokenizers', name)
        encode = jsonl(os.path.join(DATA, 'tokenizers', 'vectors', f'{name}.encode.jsonl'))
        encode = [v for v in encode if 'advisory' not in v.get('category', '')]
        got = run_lines('tokenize', '--model', model, lines=[{'text': v['text'], 'add_special_tokens': False} for v in encode])
        wrong = [v['text'][:60] for v, g in zip(encode, got) if v['ids'] != g['ids']]
        assert not wrong and len(got) == len(encode), f'{name}: {len(wrong)} of {len(encode)} differ: {wrong[:3]}'
        special = [v for v in encode if 'ids_with_special' in v]
        got = run_lines('tokenize', '--model', model, lines=[{'text': v['text'], 'add_special_tokens': True} for v in special])
        assert [v['ids_with_special'] for v in special] == [g['ids'] for g in got], name
        decode = jsonl(os.path.join(DATA, 'tokenizers', 'vectors', f'{name}.decode.jsonl'))
        for key, skip in (('text', False), ('text_skip_special', True)):
            these = [v for v in decode if key in v]
            got = run_lines('detokenize', '--model', model, lines=[{'ids': v['ids'], 'skip_special_tokens': skip} for v in these])
            wrong = [v['ids'][:8] for v, g in zip(these, got) if v[key] != g['text']]
            assert not wrong, f'{name} {key}: {len(wrong)} of {len(these)} differ: {wrong[:3]}'


@release_only
def test_template_answers_every_case():
    base = os.path.join(DATA, 'chat-templates')
    need_data(base)
    templates = json.load(open(os.path.join(base, 'templates.json'), encoding='utf-8'))
    contexts = json.load(open(os.path.join(base, 'contexts.json'), encoding='utf-8'))
    by_template = {}
    for case in jsonl(os.path.join(base, 'cases.jsonl')):
        by_template.setdefault(case['template'], []).append(case)
    wrong, n = [], 0
    for name, cases in by_template.items():
        lines = [{**contexts[c['context']], **templates['templates'][name]} for c in cases]
        path = os.path.join(base, 'templates', name + '.jinja')
        for case, got in zip(cases, run_lines('template', '--template', path, '--now', templates['now'], lines=lines)):
            n += 1
            if 'expected' in case:
                good = got.get('text') == case['expected']
            elif case['error']['kind'] == 'raised_by_template':
                good = got == {'error': case['error']['message'], 'kind': 'raised'}
            else:
                good = got.get('kind') == 'runtime'
            if not good:
                wrong.append((name, case['context'], str(got)[:100]))
    assert n > 1000 and not wrong, f'{len(wrong)} of {n} differ: {wrong[:3]}'


def test_score_equals_the_golden_log_probabilities_and_logits():
    need_data()
    for name, tolerance in (('stories260K', 1e-3), ('rand-qwen2', 1e-3), ('rand-llama31', 1e-3), ('rand-qwen3', 1e-3)):
        model = os.path.join(DATA, 'models', name)
        golden = jsonl(os.path.join(model, 'golden.jsonl'))
        got = run_lines('score', '--model', model, '--dtype', 'f32', '--top', '5', '--logits', lines=[{'ids': g['prompt_ids']} for g in golden])
        for g, s in zip(golden, got):
            assert s['ids'] == g['prompt_ids'] and len(s['logprobs']) == len(s['ids']) == len(s['top'])
            for want, have in zip(g.get('last_logits', []), s['logits']):
                assert abs(want - have) < tolerance, (name, want, have)
            for want, have in zip(g.get('prompt_logprobs', []), s['logprobs']):
                assert (want is None) == (have is None) and (want is None or abs(want - have) < tolerance), (name, want, have)
            best = max(range(len(s['logits'])), key=lambda i: (s['logits'][i], -i))
            lse = math.log(sum(math.exp(x - s['logits'][best]) for x in s['logits'])) + s['logits'][best]
            assert s['top'][-1][0][0] == best and abs(s['top'][-1][0][1] - (s['logits'][best] - lse)) < 1e-5


def test_generate_equals_the_golden_for_every_prompt_and_every_isa():
    need_data()
    here = levels()
    if float(os.environ.get('QUIRE_TEST_SCALE', 1)) < 1:  # the model's own tests have all of them under sanitizers
        here = here[-1:]
    golden = jsonl(os.path.join(STORIES, 'golden.jsonl'))
    most = max(len(g['greedy_ids']) for g in golden)
    with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as f:
        f.write('\n'.join(json.dumps({'prompt_ids': g['prompt_ids']}) for g in golden))
        f.flush()
        for isa in here:
            rc, out, err = run('generate', '--model', STORIES, '--isa', isa, '--prompts', f.name, '--max-tokens',
                               str(most), '--temperature', '0', '--ignore-eos', '--json')
            assert rc == 0, err
            got = [json.loads(l) for l in out.split('\n') if l]
            assert [g['prompt_ids'] for g in got] == [g['prompt_ids'] for g in golden]
            assert [a['ids'][:len(g['greedy_ids'])] for a, g in zip(got, golden)] == [g['greedy_ids'] for g in golden], isa
            assert all(g['finish_reason'] == 'length' for g in got)


def test_without_an_end_token_in_the_configuration_the_tokenizer_s_ends_a_text():
    need_data()
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'm')
        shutil.copytree(STORIES, model)
        for name, change in (('config.json', {'eos_token_id': None}), ('tokenizer_config.json', {'eos_token': '<s>'})):
            path = os.path.join(model, name)
            with open(path, encoding='utf-8') as f:
                content = json.load(f)
            with open(path, 'w', encoding='utf-8') as f:
                json.dump({**content, **change}, f)
        os.remove(os.path.join(model, 'generation_config.json'))
        answers = [run('generate', '--model', m, '--prompt', 'Once upon a time', '--max-tokens', '400', '--temperature', '0', '--json') for m in (STORIES, model)]
        assert answers[0][0] == 0 and json.loads(answers[0][1])['finish_reason'] == 'stop', answers[0]
        assert answers[1][:2] == answers[0][:2], answers[1]


def test_generate_reads_text_and_ids_and_stops_at_the_end_token():
    need_data()
    rc, out, err = run('generate', '--model', STORIES, '--prompt', 'Once upon a time', '--max-tokens', '400', '--json')
    assert rc == 0, err
    a = json.loads(out)
    assert a['finish_reason'] == 'stop' and a['text'].startswith(','), a
    rc, out, _ = run('generate', '--model', STORIES, '--prompt-ids', ','.join(map(str, a['prompt_ids'])), '--max-tokens', '400', '--json')
    assert rc == 0 and json.loads(out) == a
    rc, out, _ = run('generate', '--model', STORIES, '--prompt', 'Once upon a time', '--max-tokens', '400', '--stop', 'little', '--json')
    assert rc == 0 and json.loads(out)['text'] == a['text'].split('little')[0]


def test_more_tokens_than_may_come_are_not_promised():
    need_data()
    for args, status, words in ((['-n', '5', '--min-tokens', '50'], 2, ('--min-tokens 50', '5')),
                                (['-n', '2000', '--min-tokens', '1000'], 1, ('prompt 1: 1 prompt tokens', '1000', '512'))):
        rc, out, err = run('generate', '--model', STORIES, '--prompt-ids', '1', *args)
        assert rc == status and out == '' and all(w in err for w in words), (args, rc, out, err)


def test_generate_keeps_bad_words_allowed_ids_and_truncated_prompts():
    need_data()
    ask = ['generate', '--model', STORIES, '--prompt', 'Once upon a time', '-n', '40', '--temperature', '0', '--json', '--ignore-eos']
    def answer(*args):
        rc, out, err = run(*ask, *args)
        assert rc == 0, err
        return json.loads(out)
    free = answer()
    word = free['text'].split()[2]
    assert f' {word}' not in answer('--bad-words', word)['text'], (word, free)
    assert answer('--bad-words', 'zzqx')['ids'] == free['ids']
    only = free['ids'][:3]
    assert set(answer('--allowed-token-ids', ','.join(map(str, only)))['ids']) <= set(only)
    cut = answer('--truncate-prompt-tokens', '3')
    assert cut['prompt_ids'] == free['prompt_ids'][-3:]
    rc, out, _ = run('generate', '--model', STORIES, '--prompt-ids', ','.join(map(str, cut['prompt_ids'])), *ask[5:])
    assert json.loads(out) == cut
    assert len(answer('--prompt', 'the ' * 700, '--truncate-prompt-tokens', '-1')['prompt_ids']) == 512 - 40
    for args, status, words in ((['--truncate-prompt-tokens', '513'], 2, ['--truncate-prompt-tokens must be from -1 to 512, found 513']),
                                (['--bad-words', ' '], 2, ["--bad-words ' '", 'no token']), (['--allowed-token-ids', '1,x'], 2, ["given '1,x'"]),
                                (['--allowed-token-ids', '5,512'], 1, ['512', 'vocabulary'])):
        rc, out, err = run(*ask, *args)
        assert rc == status and out == '' and all(w in err for w in words), (args, rc, out, err)


def test_a_model_that_is_made_is_there_as_a_whole_or_not_at_all():
    make = [QUIRE, 'bench', 'make-model', '--like']
    with tempfile.TemporaryDirectory() as d:
        for number in (signal.SIGINT, signal.SIGTERM):
            p = subprocess.Popen([*make, 'llama-3.2-1b', '--out', f'{d}/m'], stderr=subprocess.PIPE)  # seconds, were it let
            while p.poll() is None and not os.listdir(d):
                time.sleep(0.002)
            p.send_signal(number)
            err = p.communicate(timeout=60 * SLOW)[1]
            assert p.returncode == 128 + number and b'interrupted' in err and os.listdir(d) == [], (p.returncode, err, os.listdir(d))
        for _ in range(2):
            p = subprocess.run([*make, '110m', '--layers', '1', '--out', f'{d}/m/'], capture_output=True, check=False)
            assert os.listdir(d) == ['m'] and len(os.listdir(f'{d}/m')) == 4, (p.stderr, os.listdir(d))
        assert p.returncode == 4 and b'already exists' in p.stderr, (p.returncode, p.stderr)


def test_limits_that_are_too_small_for_a_start_are_named_with_status_5():
    need_data()
    if 'asan' in QUIRE:
        raise Skip('asan takes terabytes of addresses')
    generate = ['generate', '--model', STORIES, '--prompt', 'a', '-n', '2']
    for limit, env, args, status, word in (('-v 300000', {}, [*generate, '--threads', '64'], 5, 'worker'), ('-s 64', {}, generate, 5, 'ulimit -s'),
                                           ('-S -s 64', {}, generate, 0, ''),
                                           ('-v 2000000', {'UV_THREADPOOL_SIZE': '1024'}, ['serve', '--model', STORIES, '--port', '0'], 5, 'of 1024')):
        p = subprocess.run(['/bin/sh', '-c', f'ulimit {limit}; exec "$@"', 'sh', QUIRE, *args], capture_output=True, env=environment(env), check=False,
                           timeout=60)
        assert p.returncode == status and word in p.stderr.decode(), (limit, p.returncode, p.stderr)


def test_a_benchmark_behind_the_end_of_the_context_says_where_it_is_measured():
    need_data()
    rc, out, err = run('bench', 'throughput', '--model', STORIES, '--prefill', '8', '--batch', '1', '--depth', '99999', '--steps', '2', '--repeats', '1', '--json')
    assert rc == 0 and err.count('at depth 99999 is measured at depth 5') == 2 and "the model's context ends at 512" in err, (rc, err)
    assert [json.loads(line)['depth'] for line in out.splitlines() if '"batch"' in line] == [504, 510], out


@release_only
def test_tuning_at_start_is_kept_and_changes_no_answer():
    need_data()
    ask = ['generate', '--model', STORIES, '--prompt', 'Once upon a time', '--max-tokens', '40', '--temperature', '0', '--json',
           '--max-running', '1', '--max-step-tokens', '1', '--tune']
    with tempfile.TemporaryDirectory() as cache:
        answers = []
        for when in ('off', 'now', 'cached'):
            rc, out, err = run(*ask, when, env={'XDG_CACHE_HOME': cache})
            assert rc == 0, err
            answers.append(out)
            assert ('tuned shapes=' in err and ' saved' in err) == (when == 'now'), err
            assert len(glob.glob(cache + '/quire/tune-*-*-*.txt')) == (when != 'off')
        assert answers[0] == answers[1] == answers[2]
        rc, out, err = run(*ask, 'now', env={'XDG_CACHE_HOME': '/dev/null'})
        assert rc == 0 and out == answers[0] and 'not saved: /dev/null/quire' in err, err
        with open(glob.glob(cache + '/quire/*')[0], 'r+b') as f:
            f.seek(40)
            f.write(b'!')
        rc, out, err = run(*ask, 'cached', env={'XDG_CACHE_HOME': cache})
        assert rc == 0 and out == answers[0] and err.count('tuning ignored') == 1, err
    rc, out, err = run(*ask, 'later')
    assert rc == 2 and 'off|cached|now' in err, err


def test_bench_train_says_the_same_loss_however_much_is_recomputed():
    shape = ['--dim', '64', '--layers', '2', '--heads', '4', '--ffn', '96', '--vocab', '200', '--batch', '2', '--tokens', '20', '--steps', '2', '--json']
    got = []
    for what in ('none', 'selective', 'full'):
        rc, out, err = run('bench', 'train', *shape, '--recompute', what)
        assert rc == 0, err
        got.append(json.loads(out))
        assert got[-1]['tokens'] == 40 and got[-1]['tokens_per_s'] > 0
    assert got[0]['loss'] == got[1]['loss'] == got[2]['loss'] and 4 < got[0]['loss'] < 6, got
    assert got[2]['tape_bytes'] < got[1]['tape_bytes'] < got[0]['tape_bytes'], got
    rc, out, err = run('bench', 'train', '--dim', '100', '--heads', '3')
    assert rc == 2 and '--dim 100 over --heads 3' in err, err


def test_the_version_names_the_commit_and_the_level():
    rc, out, err = run('--version')
    version, commit, level = re.fullmatch(r'quire (\S+) \(([0-9a-f]{8,40}(?:-dirty)?|unknown), (\w+)\)\n', out).groups()
    assert rc == 0 and not err and run('version')[1] == out and level == levels()[-1], (out, err)
    if commit != 'unknown':
        known = subprocess.run(['git', '-C', ROOT, 'cat-file', '-t', commit.split('-')[0]], capture_output=True, text=True, check=False)
        assert known.stdout == 'commit\n', (commit, known)
    else:
        assert not shutil.which('git') or not os.path.exists(os.path.join(ROOT, '.git'))


def test_an_installed_program_runs_from_where_it_was_put_and_finds_its_libraries_there():
    build = os.path.dirname(QUIRE)
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run(['cmake', '--install', build, '--prefix', prefix], check=True, capture_output=True)
        program = os.path.join(prefix, 'bin', 'quire')
        got = subprocess.run([program, '--version'], check=True, capture_output=True, text=True)
        assert got.stdout == run('--version')[1] and 'quire' in got.stdout, got.stdout
        with open(os.path.join(build, 'CMakeCache.txt'), encoding='utf-8') as f:
            draft = 'QUIRE_CUDA_DRAFT:BOOL=ON' in f.read()  # nothing to compute with: one of an earlier build may still lie there
        for library in ('libquire_mpi.so', 'libquire_cuda.so'):
            installed = os.path.join(prefix, 'lib', 'quire', library)
            built = os.path.exists(os.path.join(build, library)) and not (draft and 'cuda' in library)
            assert os.path.exists(installed) == built, installed
        assert os.path.exists(os.path.join(prefix, 'share', 'quire', 'quire.service'))


def test_usage_errors_exit_with_2_and_name_the_nearest():
    for args, words in ((('srve',), ('serve',)), (('generate', '--modle', 'x'), ('--model',)), (('tokenize', '--port', '1'), ()),
                        (('generate', '--max-tokens', 'many'), ('--max-tokens', 'many')), (('bench', 'lod'), ('load',)), ((), ()),
                        (('serve', STORIES, 'second'), ('second',)), (('plan', 'x', '--model', STORIES), ("'x'",)),
                        (('generate', '--model', STORIES, '--prompt', 'hello', 'world'), ('world',))):
        rc, out, err = run(*args)
        assert rc == 2 and out == '', (args, rc, out)
        assert all(w in err for w in words), (args, err)


def test_a_model_may_be_named_without_its_flag():
    need_data()
    for command in (('generate', '--prompt', 'Once', '-n', '4'), ('serve', '--print-config')):
        named = run(*command, '--model', STORIES)
        alone = run(*command, STORIES)
        assert named[0] == alone[0] == 0 and named[1], (named, alone)
        assert [a.replace('# argument', '# --model') for a in alone[1].splitlines()] == named[1].splitlines(), (named, alone)
    plans = [json.loads(run('plan', *model, '-t', '1', '--json')[1]) for model in ((STORIES,), ('--model', STORIES))]
    assert all(plans[0][key] == plans[1][key] for key in ('weight_bytes', 'kv_bytes', 'act_bytes', 'dtype')), plans


def test_output_that_cannot_be_written_is_an_error():
    need_data()
    for args in (['--help'], ['serve', '--print-config'], ['plan', '--model', STORIES], ['check', STORIES], ['tokenize', '--model', STORIES],
                 ['generate', '--model', STORIES, '--prompt', 'a', '-n', '2']):
        with open('/dev/full', 'w') as full:
            p = subprocess.run([QUIRE, *args], stdout=full, stderr=subprocess.PIPE, input=b'{"text": "a"}\n', env=environment(None), check=False)
        assert p.returncode == 4 and b'stdout' in p.stderr and b'No space left' in p.stderr, (args, p.returncode, p.stderr)
    with tempfile.TemporaryFile() as out:  # SIGXFSZ would end it without a word
        limited = ['/bin/sh', '-c', 'ulimit -f 0; exec "$@"', 'sh', QUIRE, 'plan', '--model', STORIES]
        p = subprocess.run(limited, stdout=out, stderr=subprocess.PIPE, env=environment(None), check=False)
        assert p.returncode == 4 and b'File too large' in p.stderr, (p.returncode, p.stderr)
    answers = subprocess.Popen([QUIRE, 'generate', '--model', STORIES, '--prompts', '-'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment(None))
    answers.stdout.close()  # as head does: nobody computes what nobody reads
    _, err = answers.communicate(b'"a"\n' * (20000 // SLOW))
    assert answers.returncode == 4 and b'Broken pipe' in err, (answers.returncode, err)
    p = subprocess.run([QUIRE, 'tokenize', '--model', STORIES], stdin=os.open('/', os.O_RDONLY), capture_output=True, env=environment(None), check=False)
    assert p.returncode == 4 and b'cannot read the input' in p.stderr, (p.returncode, p.stderr)


def test_a_missing_model_exits_with_4_and_says_where_it_looked():
    for command in ('generate', 'score', 'tokenize', 'plan', 'serve'):
        args = [command, '--model', '/no/such/dir'] + (['--prompt', 'x'] if command == 'generate' else [])
        rc, out, err = run(*args, stdin='{}\n')
        assert rc == 4 and '/no/such/dir' in err and out == '', (command, rc, err)
    rc, out, err = run('quantize', '/no/such/dir', '/no/such/out')
    assert rc == 4 and "model not found: '/no/such/dir'" in err and out == '', (rc, err)


TINY = os.path.join(ROOT, 'models', 'quire-tiny')


def test_a_model_that_is_not_found_has_a_near_one_or_the_command_that_downloads_it():
    with tempfile.TemporaryDirectory() as d:
        os.makedirs(f'{d}/models/quire-tiny')
        open(f'{d}/models/notes.txt', 'w').close()
        for path, says in (('models/quire-tny', "did you mean 'models/quire-tiny'?"), ('modles/quire-tiny/', "did you mean 'models/quire-tiny'?"),
                           (f'{d}/models/Quire_Tiny', f"did you mean '{d}/models/quire-tiny'?"), ('models/nots.txt', "'quire pull' fetches it"),
                           ('models/x', "'quire pull' fetches it"), ('/Qwen/Qwen2', "'quire pull' fetches it"), ('qwen', 'or ORG/NAME of the hub')):
            for command in ('plan', 'check', 'bench open'):
                p = subprocess.run([QUIRE, *command.split(), path], cwd=d, capture_output=True, text=True, env=environment(None), check=False)
                said = p.stdout + p.stderr
                assert p.returncode == 4 and f"model not found: '{path}'" in said and says in said and said.count('model not found') == 1, (path, said)


def test_words_of_other_programs_are_answered_with_what_to_type():
    for word, says in (('run', 'quire chat'), ('models', 'quire list')):
        rc, out, err = run(word, 'llama3')
        assert rc == 2 and not out and says in err, (word, err)


def test_generate_takes_the_prompt_as_its_second_argument():
    want = run('generate', '--model', TINY, '--prompt', 'Once upon', '-n', '4')
    assert want[0] == 0 and want[1] and run('generate', TINY, 'Once upon', '-n', '4') == run('generate', '-m', TINY, 'Once upon', '-n', '4') == want, want
    rc, out, err = run('generate', TINY, 'Once', 'upon')
    assert rc == 2 and "unexpected argument 'upon'" in err, err
    rc, out, err = run('generate', TINY)
    assert rc == 2 and 'quire generate MODEL PROMPT' in err, err


def test_check_config_refuses_what_serve_refuses():
    for args, status, says in ((('--max-len', '9999'), 2, '--max-len must be from 1 to 1024'), (('--api-key-file', '/nope'), 4, '/nope'),
                               (('--max-running', '4000'), 2, '--max-step-tokens must be at least --max-running (4000), found 512'),
                               (('--kv-bytes', '900TB'), 5, 'the plan has 818.5 TiB'), (('--lora', f'a={TINY}'), 4, 'adapter_config.json'),
                               (('--served-model-name', ''), 2, 'a name is empty'), (('--port', '99999'), 2, '--port must be from 0 to 65535, found 99999')):
        rc, out, err = run('serve', TINY, '--check-config', *args)
        assert rc == status and says in err and not out, (args, rc, err)
        start = run('serve', TINY, '--port', '0', *args)
        assert start[0] == status and start[2].count(says) == 1 and 'error server' not in start[2], (args, 'a start says it, and once', start)
    assert run('serve', TINY, '--check-config') == (0, '', '') == run('serve', '--check-config', '--max-len', '9999'), 'no model is named'
    rc, out, err = run('serve', '/nope', '--check-config')
    assert rc == 4 and 'model not found' in err, err


def test_merging_names_the_directory_that_is_missing():
    with tempfile.TemporaryDirectory() as d:
        for base, adapter, missing, word in ((f'{d}/base', d, 'model', 'base'), (os.path.join(ROOT, 'models', 'quire-tiny'), f'{d}/own', 'adapter', 'own')):
            rc, out, err = run('lora', 'merge', base, adapter, f'{d}/out')
            assert rc == 4 and not out and f"{missing} not found: '{d}/{word}' (No such file or directory)" in err and '.json' not in err, (rc, out, err)


def test_a_damaged_model_exits_with_4_and_names_the_file():
    need_data()
    with tempfile.TemporaryDirectory() as d:
        for f in os.listdir(STORIES):
            blob = open(os.path.join(STORIES, f), 'rb').read()
            open(os.path.join(d, f), 'wb').write(blob[:len(blob) // 2] if f == 'model.safetensors' else blob)
        for command in (['generate', '--prompt', 'x'], ['check'], ['plan'], ['score']):
            rc, out, err = run(command[0], '--model', d, *command[1:], stdin='{"ids":[1]}\n')
            assert rc == 4 and 'model.safetensors' in out + err, (command, rc, out, err)


def test_a_line_of_input_that_is_wrong_is_named_with_what_was_expected():
    need_data()
    model = ('--model', STORIES)
    for args, stdin, words in ((('generate', *model, '--prompts', '-'), '"a"\n{"text": "b"}\n', ('line 2', '{"prompt": text}')),
                               (('generate', *model, '--prompts', '-'), '"a"\nb\n', ('line 2: column 1:',)),
                               (('detokenize', *model), '{"ids": [1, 512]}\n', ('line 1', 'token id 512 at position 1', 'vocabulary of 512')),
                               (('detokenize', *model), '{"ids": [-1]}\n', ('token id -1',))):
        rc, out, err = run(*args, stdin=stdin)
        assert rc == 1 and all(w in err for w in words) and 'line 1: line' not in err, (args, rc, out, err)
    rc, out, err = run('generate', *model, '--prompts', '/no/such/file')
    assert rc == 4 and 'No such file' in err, (rc, err)
    rc, out, err = run('generate', *model, '--prompt', b'a\xffb')
    assert rc == 2 and 'UTF-8' in err and not out, (rc, out, err)


def test_a_file_of_another_kind_is_called_that():
    with tempfile.TemporaryDirectory() as d:
        with open(f'{d}/page', 'w', encoding='utf-8') as f:
            f.write('<!DOCTYPE html><html><head><title>404</title></head></html>')
        for path in (f'{d}/page', os.path.join(ROOT, 'models', 'quire-tiny', 'config.json')):
            rc, out, err = run('check', path)
            assert rc == 4 and 'neither a safetensors file' in out and 'length is' not in out, (rc, out, err)


def test_messages_name_the_whole_command():
    for group, command in (('data', 'prepare'), ('data', 'show'), ('data', 'train-tokenizer'), ('lora', 'merge'), ('bench', 'load'), ('bench', 'kern')):
        rc, out, err = run(group, command, '--nope')
        assert rc == 2 and not out and err.startswith(f'quire {group} {command}: unknown flag --nope'), (rc, out, err)
        assert 'See: ' not in err or f'See: quire {group} {command} --help' in err, err


def test_check_ends_with_4_for_whatever_would_not_run():
    with tempfile.TemporaryDirectory() as d:
        with open(f'{d}/adapter_config.json', 'w', encoding='utf-8') as f:
            f.write('{}')
        rc, out, err = run('check', d)
        assert rc == 4 and not err and 'adapter_model.safetensors' in out and 'peft_type is not "LORA"' in out and 'would not take it' in out, (rc, out, err)
        rc, out, err = run('plan', '--model', d)
        assert rc == 2 and 'is an adapter' in err, (rc, out, err)
    assert run('check')[0] == 2


def test_help_before_a_command_is_help_behind_it():
    for args in (('serve',), ('plan',), ('bench',), ('bench', 'kern')):
        assert run('help', *args) == run(*args, '--help'), args
    rc, out, err = run('help', 'srve')
    assert rc == 2 and not out and "'serve'" in err, (rc, out, err)


COMMANDS = ('', 'serve', 'chat', 'generate', 'score', 'tokenize', 'detokenize', 'template', 'grammar', 'check', 'plan', 'data', 'data prepare', 'data show',
            'data train-tokenizer', 'train', 'lora', 'lora merge', 'quantize', 'bench', 'bench load', 'bench kern', 'bench throughput', 'bench step',
            'bench open', 'bench train', 'bench comm', 'bench make-model')


def said_in_a_terminal(columns, *args):
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    with subprocess.Popen([QUIRE, *args], stdin=subprocess.DEVNULL, stdout=far, env=environment(None)) as p:
        os.close(far)
        text = b''
        try:
            while piece := os.read(near, 65536):
                text += piece
        except OSError:   # the far end is closed
            pass
        assert p.wait(60 * SLOW) == 0, args
    os.close(near)
    return text.decode().replace('\r', '')


def test_help_of_every_command_fits_into_80_columns():
    for command in COMMANDS:
        lines = said_in_a_terminal(80, *command.split(), '--help').split('\n')
        wide = [x for x in lines if len(x) > 80]
        assert len(lines) > 1 and not wide, (command, wide)


@release_only
def test_short_help_of_every_command_has_25_lines_at_most():
    for command in COMMANDS:
        lines = said_in_a_terminal(80, *command.split(), '-h').splitlines()
        assert 5 < len(lines) <= 25 and max(map(len, lines)) <= 80, (command, lines)
        whole = said_in_a_terminal(80, *command.split(), '--help')
        assert '--help lists' in lines[-1], (command, lines)
        assert not command or (lines[0] in whole and lines[1] == 'Usage:' and whole.index('Usage:') < 200), (command, whole)


def test_what_a_text_holds_does_not_steer_the_terminal_that_shows_it():
    with tempfile.TemporaryDirectory() as d:
        with open(d + '/t.txt', 'w', encoding='utf-8') as f:
            f.write('a\tb \x1b[31m\x07\x7f \u009bc')
        rc, out, err = run('data', 'prepare', '--model', os.path.join(ROOT, 'models', 'quire-tiny'), '--out', d + '/o', d + '/t.txt')
        assert rc == 0, (rc, out, err)
        shown = said_in_a_terminal(80, 'data', 'show', d + '/o').replace('\x1b[32m', '').replace('\x1b[0m', '')
        assert 'a\tb ^[[31m^G^? \ufffdc' in shown and '\x1b' not in shown, shown
        rc, out, err = run('data', 'show', d + '/o')
        assert rc == 0 and '\x1b[31m' in out, (rc, out, err)


def test_each_command_has_variables_of_its_own():
    serves, asks = {'QUIRE_MODEL': '/models/a', 'QUIRE_PORT': '81'}, {'QUIRE_CHAT_MODEL': 'b', 'QUIRE_BENCH_LOAD_MODEL': 'b', 'QUIRE_BENCH_LOAD_JSON': 'b.json'}
    for command in ('chat', 'bench load'):
        rc, out, err = run(*command.split(), '--print-config', env={**serves, **asks})
        variable = f"QUIRE_{command.upper().replace(' ', '_')}_MODEL"
        assert rc == 0 and not err and '/models/a' not in out and f'model: "b"  # {variable}\n' in out, (rc, out, err)
        assert variable in run(*command.split(), '--help')[1]
    rc, out, err = run('serve', '--print-config', env={**serves, **asks})
    assert rc == 0 and not err and '/models/a' in out and '"b"' not in out, (rc, out, err)


def test_a_variable_without_the_name_of_its_command_has_no_effect_and_is_warned_of_once():
    for command in COMMANDS[2:]:
        rc, out, err = run(*command.split(), '--help', env={'QUIRE_MODEL': 'x', 'QUIRE_API_KEY': 'x', 'QUIRE_MAX_LEN': '9', 'QUIRE_LORA': 'a=b', 'QUIRE_TUNE': 'off'})
        assert rc == 0 and not err, (command, 'what is meant for serve says nothing here', err)
    for command, old, new in (('plan', 'JSON', 'PLAN_JSON'), ('bench load', 'JSON', 'BENCH_LOAD_JSON'), ('generate', 'TEMPERATURE', 'GENERATE_TEMPERATURE'),
                              ('chat', 'TEMPERATURE', 'CHAT_TEMPERATURE')):
        rc, out, err = run(*command.split(), '--print-config', env={f'QUIRE_{old}': '1'})
        assert rc == 0 and f'QUIRE_{old}\n' not in out and 'built-in' in out, (rc, out)
        assert err == f'quire {command}: warning: the variable QUIRE_{old} has no effect here; did you mean QUIRE_{new}?\n', err


def test_a_misspelt_variable_is_named_with_a_near_one():
    mine = {'QUIRE_PROT': '81', 'QUIRE_SERVE_HOST': '::1', 'QUIRE_NUMBER_OF_DUCKS': '3'}
    others = {'QUIRE_CHAT_TEMPRATURE': '1', 'QUIRE_MPI_LIB': 'x', 'QUIRE_SERVICE_PORT': '8000', 'QUIRE_PORT_8000_TCP': 'tcp://10.0.0.1:8000',
              'QUIRE_API_PORT': 'tcp://10.0.0.1:8000', 'QUIRE_PROTT': ''}
    rc, out, err = run('serve', '--check-config', env={**mine, **others})
    assert rc == 0 and sorted(err.splitlines()) == [
        'quire serve: warning: the variable QUIRE_NUMBER_OF_DUCKS is not a setting',
        'quire serve: warning: the variable QUIRE_PROT is not a setting; did you mean QUIRE_PORT?',
        'quire serve: warning: the variable QUIRE_SERVE_HOST is not a setting; did you mean QUIRE_HOST?'], (rc, err)
    rc, out, err = run('chat', '--check-config', env={**mine, **others})
    assert rc == 0 and err == 'quire chat: warning: the variable QUIRE_CHAT_TEMPRATURE is not a setting; did you mean QUIRE_CHAT_TEMPERATURE?\n', (rc, err)


def test_settings_come_from_flag_environment_file_and_builtin_in_this_order():
    with tempfile.NamedTemporaryFile('w', suffix='.yaml') as f:
        f.write('max-running: 3\nmax-waiting: 5\nmax-step-tokens: 77\n')
        f.flush()
        rc, out, err = run('plan', '--config', f.name, '--max-running', '9', '--print-config', env={'QUIRE_PLAN_MAX_WAITING': '7'})
        assert rc == 0, err
        for want in (('max-running: 9', '--max-running'), ('max-waiting: 7', 'QUIRE_PLAN_MAX_WAITING'),
                     ('max-step-tokens: 77', f.name + ':3'), ('block-tokens: 16', 'built-in')):
            assert any(all(w.lower() in line.lower() for w in want) for line in out.split('\n')), (want, out)
        f.write('max-runing: 3\n')
        f.flush()
        rc, out, err = run('plan', '--config', f.name, '--check-config')
        assert rc == 2 and 'max-running' in err and ':4' in err, err


def test_check_and_plan_explain_a_model_without_loading_it():
    need_data()
    rc, out, err = run('check', STORIES)
    assert rc == 0 and 'LlamaForCausalLM' in out, (out, err)
    checked = json.loads(run('check', STORIES, '--json')[1])['weight_bytes']
    for quantize, dtype in (('none', 'f32'), ('int8', 'int8'), ('w4a16', 'w4a16')):   # its head is the embedding until it is rounded
        rc, out, err = run('plan', '--model', STORIES, '--json', '--quantize', quantize)
        assert rc == 0 and json.loads(out)['weight_bytes'] == checked[dtype], (dtype, checked, out, err)
    rc, out, err = run('plan', '--model', STORIES, '--json')
    assert rc == 0, err
    p = json.loads(out)
    assert p['ctx_max'] == 512 and p['kv_token_bytes'] == 5 * 2 * 4 * 8 * 4
    rc, out, err = run('plan', '--model', STORIES, '--json', '--kv-cache-dtype', 'int8', '--kv-bytes', '1MiB')
    assert rc == 0, err
    p = json.loads(out)
    assert p['kv_dtype'] == 'int8' and p['kv_token_bytes'] == 5 * 2 * 4 * (8 + 4) and p['kv_blocks'] == (1 << 20) // (16 * 480), p
    rc, out, err = run('plan', '--model', STORIES, '--json', '--kv-host-gib', '0.001')
    p = json.loads(out)
    assert rc == 0 and p['kv_host_blocks'] == int(0.001 * 2**30) // (16 * 1280), (out, err)
    parts = [v for k, v in p.items() if k in ('weight_bytes', 'kv_bytes', 'act_bytes', 'lora_bytes', 'scratch_bytes', 'table_bytes', 'tokenizer_bytes',
                                              'http_bytes', 'program_bytes')]
    assert len(parts) == 9 and p['total_bytes'] == sum(parts) + p['kv_host_bytes'], 'the second tier is of the same memory'
    rc, out, err = run('plan', '--model', STORIES, '--kv-host-gib', '1', '--no-prefix-cache')
    assert rc == 2 and 'kv-host-gib' in err, (rc, err)
    for args in (['plan'], ['generate', '--prompt-ids', '1']):
        rc, out, err = run(*args, '--model', STORIES, '--kv-host-gib', '500000')
        assert rc == 5 and '--kv-host-gib' in err, (rc, err)
    rc, out, err = run('plan', '--model', STORIES, '--kv-tokens', '64', '--max-len', '512')
    assert rc == 5 and '--max-len' in err, (rc, err)


if __name__ == '__main__':
    main(globals())
