#!/usr/bin/env python3
"""quire quantize: what it writes is what it says, is served as it is, and answers as well as its report claims."""
import fcntl
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from lib import DATA, QUIRE, ROOT, SLOW, STORIES, environment, levels, main, need_data, release_only, run, run_lines
from test_quantized_files import read_tensors, write_tensors

sys.path.insert(0, os.path.join(ROOT, 'tools'))
import random_model

MODEL = os.path.join(ROOT, 'models', 'quire-tiny')
SEED = 6


def make_text(path, n):
    r = random.Random(SEED)
    with open(path, 'w', encoding='utf-8') as f:
        for _ in range(n):
            a, b = r.randint(1, 99), r.randint(1, 99)
            f.write(f'What is {a} + {b}? It is {a + b}. Once upon a time there was a little fox who lived in the woods. ')


def make_long_text(path):
    """Which takes some seconds, also where ref is the only level."""
    make_text(path, 40 if SLOW > 1 or levels() == ['ref'] else 150)


def numbers(dtype, data):
    if dtype == 'BF16':
        return [struct.unpack('<f', struct.pack('<I', w << 16))[0] for (w,) in struct.iter_unpack('<H', data)]
    return [x for (x,) in struct.iter_unpack({'F32': '<f', 'I8': '<b'}[dtype], data)]


def score(model, ids, first, n, window):
    """Perplexity of tokens [first, first + n), in windows."""
    lines = [{'ids': ids[at:at + window]} for at in range(first, first + n, window)]
    logprobs = [p for line in run_lines('score', '--model', model, lines=lines) for p in line['logprobs'][1:]]
    return math.exp(-sum(logprobs) / len(logprobs))


def test_a_quantized_model_is_checked_served_and_as_good_as_its_report_says():
    before = os.path.getsize(os.path.join(MODEL, 'model.safetensors'))
    with tempfile.TemporaryDirectory() as d:
        make_text(f'{d}/text', 50 if SLOW == 1 else 25)
        with open(f'{d}/text', encoding='utf-8') as f:
            ids = run_lines('tokenize', '--model', MODEL, lines=[{'text': f.read(), 'add_special_tokens': False}])[0]['ids']
        for kind, share, more in (('int8', 0.57, []), ('int4', 0.37, ['--asymmetric']), ('fp8', 0.57, []))[:1 if SLOW > 1 else 3]:
            rc, out, err = run('quantize', MODEL, f'{d}/{kind}', '--type', kind, '--text', f'{d}/text', '--json', *more)
            assert rc == 0 and not err, err
            r = json.loads(out)
            t = r['text']
            assert r['type'] == kind and r['asymmetric'] == bool(more) and r['seconds'] > 0, r
            assert r['kept'] == {'embeddings': 1, 'heads': 0, 'routers': 0, 'bytes': 1536 * 256 * 2}, r
            assert r['perplexity']['foreign'] == (r['perplexity']['before'] > 1536), r
            assert r['matrices'] == r['calibrated'] == 35 and r['norms'] == 10 and r['not_smoothed'] is None, r
            assert r['bytes_before'] == before and r['bytes_after'] == os.path.getsize(f'{d}/{kind}/model.safetensors') < share * before, r
            assert sorted(r['files']) == sorted(os.listdir(f'{d}/{kind}')) and 'tokenizer.json' in r['files'], r
            assert t['tokens'] == len(ids) and t['bos'] == -1 and 0 < t['held_out'] <= t['held_out_first'] and t['calibrated'] <= t['held_out_first'], t
            for model, said in ((MODEL, r['perplexity']['before']), (f'{d}/{kind}', r['perplexity']['after'])):
                told = score(model, ids, t['held_out_first'], t['held_out'], t['window'])
                assert abs(told / said - 1) < 1e-5, (kind, told, said)  # log-probabilities are printed as f32
            assert r['perplexity']['after'] != r['perplexity']['before'], r
            rc, out, err = run('check', f'{d}/{kind}')
            assert rc == 0 and 'compressed-tensors' in out and 'unused' not in out, (out, err)
            assert len(os.listdir(d)) == len([k for k in ('text', 'int8', 'int4', 'fp8') if os.path.exists(f'{d}/{k}')])


@release_only
def test_a_perplexity_above_that_of_guessing_is_said_to_say_nothing():
    need_data()
    with tempfile.TemporaryDirectory() as d:
        with open(f'{d}/text', 'w', encoding='utf-8') as f:
            f.write('Once upon a time, there was a little girl named Lily. She loved to play outside in the park. ' * 30)
        for model, foreign in ((MODEL, True), (STORIES, False)):
            rc, out, err = run('quantize', model, f'{d}/m{foreign}', '--text', f'{d}/text')
            assert rc == 0 and not err and out.count('warning      the perplexity says nothing: guessing among the 1536') == foreign, (out, err)
            before = float(out.split('perplexity   ')[1].split()[0])
            assert (before > 1536) == foreign, out


def test_what_is_written_is_within_half_a_step_and_the_rest_is_what_it_was():
    old = read_tensors(os.path.join(MODEL, 'model.safetensors'))
    with tempfile.TemporaryDirectory() as d:
        rc, out, err = run('quantize', MODEL, f'{d}/m')
        assert rc == 0 and not err and 'none: no text to calibrate with' in out and 'perplexity' not in out, (out, err)
        new = read_tensors(f'{d}/m/model.safetensors')
        rounded = [k[:-6] for k in new if k.endswith('_scale')]
        assert len(rounded) == 35
        for name, (dtype, shape, data) in old.items():
            if name not in rounded:
                assert new[name] == (dtype, shape, data), name
        for name in rounded[:3]:
            (o, i), w = old[name][1], numbers(*old[name][::2])
            codes, scales = numbers(*new[name][::2]), numbers(*new[f'{name}_scale'][::2])
            assert new[name][1] == [o, i] and new[f'{name}_scale'][1] == [o, 1]
            for k, x in enumerate(w):
                assert abs(x - codes[k] * scales[k // i]) <= scales[k // i] * 0.50001, (name, k)
        with open(f'{d}/m/config.json', encoding='utf-8') as f, open(f'{MODEL}/config.json', encoding='utf-8') as g:
            c, was = json.load(f), json.load(g)
        assert c.pop('quantization_config')['ignore'] == ['lm_head'] and c == was


def test_what_else_a_model_needs_is_copied_and_nothing_that_could_be_run():
    with tempfile.TemporaryDirectory() as d:
        shutil.copytree(MODEL, f'{d}/in')
        os.mkdir(f'{d}/in/2_Dense')
        write_tensors(f'{d}/in/2_Dense/model.safetensors', {'linear.weight': ('F32', [1, 256], bytes(1024))})
        copied = {'generation_config.json': '{}', 'chat_template.jinja': 'x', 'added_tokens.json': '{}', 'config_sentence_transformers.json': '{}',
                  '1_Pooling/config.json': '{"pooling_mode_mean_tokens": true}', 'LICENSE': 'terms',
                  'modules.json': json.dumps([{'path': p, 'type': f'sentence_transformers.models.{t}'}
                                              for p, t in (('', 'Transformer'), ('1_Pooling', 'Pooling'), ('2_Dense', 'Dense'), ('3_Normalize', 'Normalize'))]),
                  '2_Dense/config.json': '{"in_features": 256, "out_features": 1, "bias": false}'}
        os.mkdir(f'{d}/in/1_Pooling')
        for name, text in [*copied.items(), ('modeling_x.py', 'x'), ('pytorch_model.bin', 'x'), ('1_Pooling/x.py', 'x')]:
            with open(f'{d}/in/{name}', 'w', encoding='utf-8') as f:
                f.write(text)
        for more in ([], ['--replace']):
            rc, out, err = run('quantize', f'{d}/in', f'{d}/m', *more)
            assert rc == 0 and not err and sorted(os.listdir(d)) == ['in', 'm'], (out, err, os.listdir(d))
        found = {os.path.relpath(os.path.join(at, n), f'{d}/m') for at, _, names in os.walk(f'{d}/m') for n in names}
        assert found == set(copied) | {'2_Dense/model.safetensors', 'config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'}, found
        assert all(n in out.split('\n')[0] for n in found), out
        for name, text in copied.items():
            with open(f'{d}/m/{name}', encoding='utf-8') as f:
                assert f.read() == text, name
        rc, out, err = run('quantize', MODEL, f'{d}/m', '--replace')  # which has no stages
        assert rc == 0 and not err and sorted(os.listdir(d)) == ['in', 'm'] and not {'1_Pooling', '2_Dense'} & set(os.listdir(f'{d}/m')), (out, err, os.listdir(d))


def test_a_gguf_file_becomes_the_directory_that_its_original_becomes():
    need_data()
    with tempfile.TemporaryDirectory() as d:
        for name, model in (('a', STORIES), ('b', os.path.join(DATA, 'models', 'gguf', 'stories260K-f32.gguf'))):
            rc, out, err = run('quantize', model, f'{d}/{name}')
            assert rc == 0 and not err, err
        a, b = (read_tensors(f'{d}/{name}/model.safetensors') for name in 'ab')
        assert a == b
        ids = [run_lines('tokenize', '--model', f'{d}/{name}', lines=[{'text': 'Once upon a time, Lily\u2019s cat'}])[0]['ids'] for name in 'ab']
        assert ids[0] == ids[1]
        said = [run_lines('score', '--model', f'{d}/{name}', lines=[{'ids': ids[0]}]) for name in 'ab']
        assert said[0] == said[1]


def test_a_gemma_file_gets_back_the_norms_that_its_converter_changed():
    shape = {'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 16, 'intermediate_size': 128,
             'vocab_size': 512, 'max_position_embeddings': 128, 'rms_norm_eps': 1e-5, 'tie_word_embeddings': True}
    with tempfile.TemporaryDirectory() as d:
        random_model.write_gguf(f'{d}/llama', shape, 'Q8_0')
        with open(f'{d}/llama', 'rb') as f, open(f'{d}/m.gguf', 'wb') as g:
            g.write(f.read().replace(b'llama', b'gemma'))
        rc, out, err = run('quantize', f'{d}/m.gguf', f'{d}/m')
        assert rc == 0 and not err, (out, err)
        norms = {k: set(numbers(*t[::2])) for k, t in read_tensors(f'{d}/m/model.safetensors').items() if 'norm' in k}
        assert len(norms) == 5 and all(n == {0.0} for n in norms.values()), norms  # 1 in the file
        r = random.Random(SEED)
        ids = [r.randrange(512) for _ in range(100)]
        a, b = (run_lines('score', '--model', m, lines=[{'ids': ids}])[0]['logprobs'][1:] for m in (f'{d}/m.gguf', f'{d}/m'))
        # Both have 8 bits, of blocks and of rows: an eight's 0.4 % a product. Were the norms what they are in the file, answers would have nothing in common.
        assert max(abs(x - y) for x, y in zip(a, b)) < 0.2 * (max(a) - min(a)), (a, b)


@release_only
def test_smoothing_takes_back_outliers_that_cost_a_rounded_model_its_precision():
    """The same function, but that some channels are 64 times smaller behind their norm and have columns 64 times larger."""
    t = read_tensors(os.path.join(MODEL, 'model.safetensors'))
    for layer in range(5):
        for norm, matrices in (('input_layernorm', ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj']),
                               ('post_attention_layernorm', ['mlp.gate_proj', 'mlp.up_proj'])):
            for name, factor in ((norm, 1 / 64), *((m, 64) for m in matrices)):
                key = f'model.layers.{layer}.{name}.weight'
                dtype, shape, data = t[key]
                x = [v * (factor if i % 256 % 50 == 3 else 1) for i, v in enumerate(numbers(dtype, data))]
                t[key] = (dtype, shape, b''.join(struct.pack('<f', v)[0 if dtype == 'F32' else 2:] for v in x))
    with tempfile.TemporaryDirectory() as d:
        make_text(f'{d}/text', 40)
        os.mkdir(f'{d}/in')
        for name in ('config.json', 'tokenizer.json', 'tokenizer_config.json'):
            shutil.copy(f'{MODEL}/{name}', f'{d}/in')
        write_tensors(f'{d}/in/model.safetensors', t)
        said = {}
        for flag in ('--smooth', '--no-smooth'):
            rc, out, err = run('quantize', f'{d}/in', f'{d}/{flag}', '--type', 'int4', '--text', f'{d}/text', '--json', flag)
            assert rc == 0, err
            said[flag] = json.loads(out)
        before = said['--smooth']['perplexity']['before']
        assert said['--smooth']['norms_smoothed'] == 10, said
        assert before == said['--no-smooth']['perplexity']['before'], said
        off = {k: abs(math.log(v['perplexity']['after'] / before)) for k, v in said.items()}
        assert off['--smooth'] < 0.5 * off['--no-smooth'], (off, said)


def test_what_cannot_be_quantized_or_written_is_refused_by_name_and_leaves_nothing():
    with tempfile.TemporaryDirectory() as d:
        assert run('quantize', MODEL, f'{d}/m')[0] == 0
        with open(f'{d}/short', 'w', encoding='utf-8') as f:
            f.write('too short')
        with open(f'{d}/latin1', 'wb') as f:
            f.write('Er fährt. '.encode('latin1') * 100)
        for args, wanted, word in (((MODEL, f'{d}/m'), 4, '--replace'), ((f'{d}/m', f'{d}/n'), 4, 'quantized already (compressed-tensors)'),
                                   ((MODEL,), 2, 'expected two'), ((MODEL, f'{d}/n', '--asymmetric'), 2, '--asymmetric is for --type int4'),
                                   ((MODEL, f'{d}/n', '--group', '32'), 2, '--group is for --type int4'),
                                   ((MODEL, f'{d}/n', '--type', 'int4', '--group', '48'), 2, 'expected 32, 64 or 128'),
                                   ((MODEL, f'{d}/n', '--text', f'{d}/none'), 4, 'none'), ((MODEL, f'{d}/n', '--text', f'{d}/short'), 1, 'expected at least 32'),
                                   ((MODEL, f'{d}/n', '--text', f'{d}/latin1'), 1, f'{d}/latin1: byte 4: 0xE4 is not UTF-8 here'),
                                   ((f'{d}/none', f'{d}/n'), 4, 'none'), ((d, f'{d}/n'), 4, 'or a *.gguf file')):
            rc, out, err = run('quantize', *args)
            assert rc == wanted and not out and word in err and err.count('\n') == 1, (args, rc, err)
            assert sorted(os.listdir(d)) == ['latin1', 'm', 'short'], os.listdir(d)
        rc, out, err = run('quantize', MODEL, f'{d}/m', '--type', 'int4', '--group', '32', '--replace')
        assert rc == 0 and 'a scale for 32 inputs' in out and sorted(os.listdir(d)) == ['latin1', 'm', 'short'], (out, err)


def everything(d):
    return sorted((os.path.relpath(os.path.join(at, n), d), os.path.getsize(os.path.join(at, n))) for at, dirs, files in os.walk(d) for n in dirs + files)


def test_replace_takes_an_earlier_out_or_an_empty_directory_and_nothing_else():
    with tempfile.TemporaryDirectory() as d:
        shutil.copytree(MODEL, f'{d}/models/tiny')
        shutil.copytree(MODEL, f'{d}/bare', ignore=shutil.ignore_patterns('*.md'))
        assert run('quantize', MODEL, f'{d}/mixed')[0] == 0
        os.mkdir(f'{d}/empty')
        os.mkdir(f'{d}/mixed/own')
        os.symlink('mixed', f'{d}/link')
        with open(f'{d}/notes', 'w', encoding='utf-8') as f:
            f.write('notes')
        was = everything(d)
        for model, out, word in ((f'{d}/models/tiny', f'{d}/models/tiny', "'README.md'"), (f'{d}/models/tiny', f'{d}/models', "holds 'tiny'"),
                                 (f'{d}/bare', f'{d}/bare', 'not a quantized model'), (MODEL, f'{d}/mixed', "holds 'own'"), (MODEL, f'{d}/link', 'not a directory'),
                                 (MODEL, f'{d}/notes', 'not a directory')):
            rc, said, err = run('quantize', model, out, '--replace')
            assert rc == 2 and not said and word in err and 'left alone' in err and err.count('\n') == 1, (out, rc, err)
            assert everything(d) == was, (out, everything(d))
        os.rmdir(f'{d}/mixed/own')
        for out in ('mixed', 'empty'):
            rc, said, err = run('quantize', MODEL, f'{d}/{out}', '--replace')
            assert rc == 0 and not err and os.path.exists(f'{d}/{out}/model.safetensors'), (out, err)


def listens(pid):
    """There is a thread that waits for signals."""
    names = []
    try:
        for task in os.listdir(f'/proc/{pid}/task'):
            with open(f'/proc/{pid}/task/{task}/comm', encoding='utf-8') as f:
                names.append(f.read().strip())
    except OSError:
        pass  # a thread that ended meanwhile
    return 'signals' in names


def test_a_run_that_is_interrupted_early_or_late_leaves_nothing_behind():
    with tempfile.TemporaryDirectory() as d:
        make_long_text(f'{d}/text')
        for late in (False, True):
            for _ in range(20):  # on a busy machine it may be through before this process gets its turn
                p = subprocess.Popen([QUIRE, 'quantize', MODEL, f'{d}/m', '--text', f'{d}/text'], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=environment(None))
                while p.poll() is None and not (any(n.startswith('.saving') for n in os.listdir(d)) if late else listens(p.pid)):
                    time.sleep(0.002)
                p.send_signal(signal.SIGINT)
                out, err = p.communicate(timeout=60 * SLOW)
                if p.returncode:
                    break
                shutil.rmtree(f'{d}/m')
            assert p.returncode == 130 and not out and b'interrupted' in err and os.listdir(d) == ['text'], (late, p.returncode, out, err, os.listdir(d))


def test_what_a_killed_run_has_left_goes_with_the_next_one_and_nothing_else_does():
    gone = 4194304 + 1  # more than any process's number
    with tempfile.TemporaryDirectory() as d:
        make_long_text(f'{d}/text')
        for _ in range(20):  # on a busy machine it may be through before this process gets its turn
            p = subprocess.Popen([QUIRE, 'quantize', MODEL, f'{d}/m', '--text', f'{d}/text'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env=environment(None))
            while p.poll() is None and not any(n.startswith('.saving') for n in os.listdir(d)):
                time.sleep(0.002)
            p.kill()
            p.wait()
            if f'.saving-m.{p.pid}' in os.listdir(d):
                break
            shutil.rmtree(f'{d}/m', ignore_errors=True)
        assert sorted(os.listdir(d)) == [f'.saving-m.{p.pid}', 'text'], os.listdir(d)
        kept = [f'.saving-m.{os.getpid()}', f'.saving-n.{gone}', f'.saving-m.{gone}x', f'.saving-m.{gone + 1}', f'.saving-m.{gone + 2}', f'.saving-m.{gone + 3}']
        for name in kept[:-1] + [f'.saving-m.{gone}']:
            os.mkdir(f'{d}/{name}')
            with open(f'{d}/{name}/config.json', 'w', encoding='utf-8') as f:
                f.write('{}')
        with open(f'{d}/{kept[3]}/own', 'w', encoding='utf-8') as f:
            f.write('work')
        os.symlink(kept[1], f'{d}/{kept[5]}')
        held = os.open(f'{d}/{kept[4]}', os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        rc, out, err = run('quantize', MODEL, f'{d}/m')
        os.close(held)
        assert rc == 0 and out and sorted(os.listdir(d)) == sorted(kept + ['m', 'text']), (rc, out, err, os.listdir(d))
        assert err.count('it is removed') == 2 and f'.saving-m.{p.pid}:' in err and f'.saving-m.{gone}:' in err and err.count('\n') == 3, err
        assert f'{kept[3]}: a run that was killed has left it; it stays, as it holds own' in err and os.listdir(f'{d}/{kept[3]}') and os.listdir(f'{d}/{kept[1]}'), err


@release_only
def test_a_signal_that_comes_twice_at_once_is_one():
    """As timeout sends it, to the process and to its group. One of four may be spoilt by a machine that stops a thread for a second."""
    with tempfile.TemporaryDirectory() as d:
        make_long_text(f'{d}/text')
        interrupted = good = 0
        for _ in range(40):
            p = subprocess.Popen([QUIRE, 'quantize', MODEL, f'{d}/m', '--text', f'{d}/text'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env=environment(None))
            while p.poll() is None and not any(n.startswith('.saving') for n in os.listdir(d)):
                time.sleep(0.002)
            p.send_signal(signal.SIGINT)
            p.send_signal(signal.SIGINT)
            interrupted += p.wait(60 * SLOW) != 0
            good += p.returncode == 130 and os.listdir(d) == ['text']
            for name in set(os.listdir(d)) - {'text'}:
                shutil.rmtree(f'{d}/{name}')
            if interrupted == 4:
                break
        assert good + 1 >= interrupted, (good, interrupted)


if __name__ == '__main__':
    main(globals())
