#!/usr/bin/env python3
"""Adapters as a user has them: trained by quire train, served beside their model, loaded and unloaded while the server runs."""
import json
import os
import shutil
import struct
import tempfile
import threading

from lib import STORIES, Server, main, need_data, run, run_lines
from test_quantized_files import read_tensors, write_tensors
from test_train import World

ROOT = {'Authorization': 'Bearer root'}
USER = {'Authorization': 'Bearer user'}
ASKED = {'prompt': 'The cat number 7', 'max_tokens': 24, 'temperature': 0, 'logprobs': 3}


class Adapted(World):
    """A model in out/final, two runs with adapters from it, tuned and other, that learn from other text."""

    def __enter__(self):
        super().__enter__()
        self.train('compute.dtype=f32')
        self.base = self.path('out', 'final')
        self.prepare('dogs', '\n\n'.join(f'A dog called {i} ran after {i * 7} balls in the garden.' for i in range(80)), '--separator', '')
        for name, rank, alpha, targets in (('tuned', 4, 16, ('q_proj', 'v_proj', 'up_proj', 'down_proj')), ('other', 8, 8, ('k_proj', 'o_proj', 'gate_proj'))):
            self.train('compute.dtype=f32', 'model.config=', f'model.from={self.base}', f'data.train={self.path("dogs")}', f'save.out={self.path(name)}',
                       f'lora.rank={rank}', f'lora.alpha={alpha}', *(f'lora.targets={t}' for t in targets), 'eval.every=0', 'steps=8')
        return self

    def adapter(self, name):
        return self.path(name, 'adapter')


GGUF_NAMES = {'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
              'mlp.down_proj': 'ffn_down'}


def as_gguf(base, adapter, out, arch='llama'):
    """PEFT's directory as the one file that llama.cpp has of it: rows of q and k as its converter leaves them for a llama."""
    with open(os.path.join(base, 'config.json'), encoding='utf-8') as f:
        config = json.load(f)
    with open(os.path.join(adapter, 'adapter_config.json'), encoding='utf-8') as f:
        alpha = json.load(f)['lora_alpha']
    text = lambda t: struct.pack('<Q', len(t)) + t.encode()
    keys = [text(k) + struct.pack('<I', 8) + text(v) for k, v in (('general.architecture', arch), ('general.type', 'adapter'), ('adapter.type', 'lora'))]
    keys.append(text('adapter.lora.alpha') + struct.pack('<If', 6, alpha))
    tensors, data = [], b''
    for name, (dtype, (rows, cols), numbers) in read_tensors(os.path.join(adapter, 'adapter_model.safetensors')).items():
        assert dtype == 'F32', dtype
        layer, matrix, half = name.split('.layers.')[1].split('.', 1)[0], '.'.join(name.split('.')[-5:-2]).split('.', 1)[1], name.split('.')[-2]
        lines = [numbers[4 * cols * i:4 * cols * (i + 1)] for i in range(rows)]
        heads = {'self_attn.q_proj': config['num_attention_heads'], 'self_attn.k_proj': config['num_key_value_heads']}.get(matrix)
        if half == 'lora_B' and heads:
            each = rows // heads
            lines = [lines[h * each + r // 2 + r % 2 * (each // 2)] for h in range(heads) for r in range(each)]
        tensors.append(text(f'blk.{layer}.{GGUF_NAMES[matrix]}.weight.{half.lower()}') + struct.pack('<IQQIQ', 2, cols, rows, 0, len(data)))
        data += b''.join(lines)
        data += bytes(-len(data) % 32)
    head = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(keys)) + b''.join(keys) + b''.join(tensors)
    with open(out, 'wb') as f:
        f.write(head + bytes(-len(head) % 32) + data)
    return out


def ask(s, model, headers=None, **more):
    status, answer = s.post('/v1/completions', {'model': model, **ASKED, **more}, headers)
    assert status == 200, answer
    assert answer['model'] == model, answer
    return answer['choices'][0]


def embed(s, model):
    status, answer = s.post('/v1/embeddings', {'model': model, 'input': ASKED['prompt']})
    assert status == 200 and answer['model'] == model, answer
    return answer['data'][0]['embedding']


def logprobs(choice):
    return choice['logprobs']['token_logprobs']


def test_a_trained_adapter_beside_its_model_says_what_the_merged_model_says():
    need_data()
    with Adapted() as w:
        with Server('--dtype', 'f32', model=w.base) as s:
            plain = ask(s, 'final')
        with Server('--dtype', 'f32', model=w.path('tuned', 'final')) as s:
            merged, merged_vector = ask(s, 'final'), embed(s, 'final')
        with Server('--dtype', 'f32', '--lora', f'tuned={w.adapter("tuned")}', '--lora', f'other={w.adapter("other")}', model=w.base) as s:
            assert 'lora    2 of 2 slots in use, ranks up to 16' in s.stderr(), s.stderr()
            tuned = ask(s, 'tuned')
            assert ask(s, 'final') == plain, 'the model without an adapter is what it was'
            assert [m['id'] for m in json.loads(s.get('/v1/models')[1])['data']] == ['final', 'tuned', 'other']
            alone = {name: ask(s, name, seed=5, temperature=0.8) for name in ('final', 'tuned', 'other')}
            got = {}
            threads = [threading.Thread(target=lambda i=i, n=n: got.update({(i, n): ask(s, n, seed=5, temperature=0.8)})) for i in range(4) for n in alone]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert all(got[i, n] == alone[n] for i, n in got) and len(got) == 12, 'together is as alone'
            vectors = {name: embed(s, name) for name in alone}
        # As PEFT names them over a model without its head.
        shutil.copytree(w.adapter('tuned'), w.path('bare'))
        named = read_tensors(w.path('bare', 'adapter_model.safetensors'))
        write_tensors(w.path('bare', 'adapter_model.safetensors'), {k.replace('base_model.model.model.', 'base_model.model.'): v for k, v in named.items()})
        with Server('--dtype', 'f32', '--lora', f'bare={w.path("bare")}', model=w.base) as s:
            assert embed(s, 'bare') == vectors['tuned']
        # As llama.cpp has them.
        one = as_gguf(w.base, w.adapter('tuned'), w.path('tuned.gguf'))
        with Server('--dtype', 'f32', '--lora', f'one={one}', '--lora', f'two={as_gguf(w.base, w.adapter("other"), w.path("other.gguf"))}', model=w.base) as s:
            assert [embed(s, n) for n in ('one', 'two')] == [vectors['tuned'], vectors['other']]
        assert run('lora', 'merge', w.base, one, w.path('from-gguf'))[0] == 0 == run('lora', 'merge', w.base, w.adapter('tuned'), w.path('from-peft'))[0]
        assert len({open(w.path(d, 'model.safetensors'), 'rb').read() for d in ('from-gguf', 'from-peft')}) == 1
        rc, _, err = run('serve', '--model', one, '--port', '0')
        assert rc != 0 and 'tuned.gguf: is an adapter (key general.type), not a model: name its base model' in err, err
        told = [run('generate', '--model', w.base, '--dtype', 'f32', '--prompt', ASKED['prompt'], '-n', '24', *lora)
                for lora in ([], ['--lora', w.adapter('tuned')], ['--lora', f'a={w.adapter("tuned")}'])]
        assert [t[1] for t in told] == [c['text'] + '\n' for c in (plain, tuned, tuned)], told
        said = [run_lines('score', '--model', model, '--dtype', 'f32', *lora, lines=[{'prompt': ASKED['prompt'] + tuned['text']}])[0]['logprobs'][1:]
                for model, *lora in ([w.base], [w.path('tuned', 'final')], [w.base, '--lora', w.adapter('tuned')], [w.base, '--lora', f'a={w.adapter("tuned")}'])]
        assert said[2] == said[3] != said[0] and max(abs(a - b) for a, b in zip(said[1], said[2])) < 1e-4, said
        rc, _, err = run('generate', '--model', w.base, '--prompt', 'x', '--lora', w.base)
        assert rc != 0 and err.startswith(f'quire generate: --lora {w.base}: '), err
        # Sums of a hundred products in another order through two layers; logits are of order 1.
        assert tuned['text'] == merged['text'] and tuned['text'] != plain['text'], (tuned, merged)
        assert max(abs(a - b) for a, b in zip(logprobs(tuned), logprobs(merged))) < 1e-4, (tuned, merged)
        apart = {name: max(abs(a - b) for a, b in zip(v, merged_vector)) for name, v in vectors.items()}
        assert apart['tuned'] < 1e-5 and apart['final'] > 1e-3 and apart['other'] > 1e-3, apart


def load(s, name, path, headers=None, **more):
    status, answer = s.post('/v1/load_lora_adapter', {'lora_name': name, 'lora_path': path, **more}, ROOT if headers is None else headers)
    return status, answer if status == 200 else answer['error']


def unload(s, name, headers=None):
    return s.post('/v1/unload_lora_adapter', {'lora_name': name}, ROOT if headers is None else headers)


def names(s):
    return [m['id'] for m in json.loads(s.get('/v1/models', USER)[1])['data']]


def prepare_directory(w):
    """adapters/ with two good ones, one of another model, and links that lead out."""
    d = w.path('adapters')
    os.mkdir(d)
    shutil.copytree(w.adapter('tuned'), os.path.join(d, 'tuned'))
    shutil.copytree(w.adapter('other'), os.path.join(d, 'other'))
    os.symlink('tuned', os.path.join(d, 'link-inside'))
    os.symlink(w.adapter('other'), os.path.join(d, 'link-outside'))
    as_gguf(w.base, w.adapter('tuned'), os.path.join(d, 'tuned.gguf'))
    as_gguf(w.base, w.adapter('tuned'), os.path.join(d, 'qwen.gguf'), 'qwen2')
    os.symlink(as_gguf(w.base, w.adapter('tuned'), w.path('outside.gguf')), os.path.join(d, 'link.gguf'))
    os.mkfifo(os.path.join(d, 'pipe.gguf'))
    os.mkdir(os.path.join(d, 'half'))
    os.symlink(os.path.join(w.adapter('tuned'), 'adapter_config.json'), os.path.join(d, 'half', 'adapter_config.json'))
    shutil.copytree(w.adapter('tuned'), os.path.join(d, 'wide'))
    with open(os.path.join(d, 'wide', 'adapter_config.json'), encoding='utf-8') as f:
        config = json.load(f)
    with open(os.path.join(d, 'wide', 'adapter_config.json'), 'w', encoding='utf-8') as f:
        json.dump({**config, 'r': 5}, f)
    return d


def test_a_lora_dir_that_is_not_there_is_named_at_the_start_and_adapters_in_pickle_as_what_they_are():
    need_data()
    with tempfile.TemporaryDirectory() as d:
        late, adapter = os.path.join(d, 'late'), os.path.join(d, 'late', 'a')
        with Server('--lora-dir', late) as s:
            assert f'--lora-dir is no directory now, nothing can be loaded from it: {late}\n' in s.stderr(), s.stderr()
            assert load(s, 'a', 'a', {})[0] == 404
            os.makedirs(adapter)
            with open(os.path.join(adapter, 'adapter_config.json'), 'w', encoding='utf-8') as f:
                json.dump({'peft_type': 'LORA', 'r': 4, 'lora_alpha': 8}, f)
            assert 'adapter_model.safetensors: No such file' in load(s, 'a', 'a', {})[1]['message']
            with open(os.path.join(adapter, 'adapter_model.bin'), 'wb'):
                pass
            status, error = load(s, 'a', 'a', {})
            assert status == 400 and 'adapter_model.bin: is pickle, which can run code and is never read' in error['message'], error
        for command in (['generate', '--model', STORIES, '--prompt', 'x', '--lora', adapter], ['check', adapter]):
            rc, out, err = run(*command)
            assert rc == 4 and 'adapter_model.bin: is pickle' in out + err, (rc, out, err)


def test_adapters_come_and_go_while_the_server_runs_for_those_with_the_admin_key():
    need_data()
    with Adapted() as w:
        d = prepare_directory(w)
        with Server('--lora-dir', d, '--lora-slots', '2', '--admin-key', 'root', '--api-key', 'user', model=w.base) as s:
            for headers, status in (({}, 401), (USER, 403)):
                assert load(s, 'a', 'tuned', headers)[0] == status and unload(s, 'a', headers)[0] == status
            assert names(s) == ['final'] and 'is no directory now' not in s.stderr()
            assert s.post('/v1/completions', {'model': 'a', **ASKED}, USER)[1]['error']['code'] == 'model_not_found'
            for path, status, why in (('../adapters/tuned', 403, 'leads out'), ('tuned/../../tuned/adapter', 403, 'leads out'), ('/etc', 403, 'leads out'),
                                      (d + '/..', 403, 'leads out'), ('link-outside', 403, 'lies outside'), ('half', 403, 'lies outside'),
                                      ('link.gguf', 403, 'lies outside'), ('../outside.gguf', 403, 'leads out'), ('pipe.gguf', 400, 'expected a regular file'),
                                      ('qwen.gguf', 400, 'is "qwen2", expected "llama"'), ('tuned/adapter_config.json', 400, 'does not begin with "GGUF"'),
                                      ('nothing', 404, 'No such file'), ('', 400, 'expected 1 to'), ('wide', 400, 'is [4, 64], expected [5, 64]')):
                got, error = load(s, 'a', path)
                assert got == status and why in error['message'] and error['param'] == 'lora_path', (path, got, error)
                assert d not in error['message'], error
            assert s.post('/v1/load_lora_adapter', {'lora_name': 7, 'lora_path': 'tuned'}, ROOT)[1]['error']['param'] == 'lora_name'
            assert load(s, 'final', 'tuned')[1]['param'] == 'lora_name'
            plain = ask(s, 'final', USER)
            assert load(s, 'a', 'tuned') == (200, {'status': 'loaded', 'lora_name': 'a'})
            assert load(s, 'b', d + '/link-inside')[0] == 200
            assert names(s) == ['final', 'a', 'b']
            one = json.loads(s.get('/v1/models/a', USER)[1])
            assert one['id'] == 'a' and one['parent'] == 'final' and d not in json.dumps(one), one
            a = ask(s, 'a', USER)
            assert {**ask(s, 'b', USER)} == a != plain
            assert load(s, 'a', 'other')[1]['message'].startswith("the adapter 'a' is loaded already")
            assert load(s, 'c', 'other')[0] == 429
            assert unload(s, 'b') == (200, {'status': 'unloaded', 'lora_name': 'b'}) and names(s) == ['final', 'a']
            assert load(s, 'a', 'other', load_inplace=True)[0] == 200
            assert ask(s, 'a', USER) not in (a, plain) and ask(s, 'final', USER) == plain
            stream = s.stream('/v1/completions', {**ASKED, 'model': 'a', 'max_tokens': 200, 'ignore_eos': True}, USER)
            first = next(stream)
            assert unload(s, 'a')[0] == 200 and names(s) == ['final']
            assert s.post('/v1/completions', {'model': 'a', **ASKED}, USER)[0] == 404
            rest = list(stream)
            assert first['model'] == 'a' and rest[-1]['choices'][0]['finish_reason'] == 'length', rest[-1]
            assert unload(s, 'a')[0] == 404
            assert load(s, 'one', 'tuned.gguf')[0] == 200 and ask(s, 'one', USER)['text'] == a['text'] and unload(s, 'one')[0] == 200
            assert load(s, 'again', 'tuned')[0] == 200 and ask(s, 'again', USER)['text'] == a['text']
            metrics = s.get('/metrics', ROOT)[1]
            assert 'adapter="again",id="' in metrics and 'quire_lora_adapters{' in metrics, metrics
            count = [line for line in metrics.split('\n') if line.startswith('quire_lora_requests_total{')]
            assert len(count) == 1 and count[0].endswith(' 1.0'), count


def test_a_server_without_a_directory_for_adapters_loads_none_and_wrong_flags_are_named():
    need_data()
    with Adapted() as w:
        with Server('--lora', f'a={w.adapter("tuned")}', model=w.base) as s:
            status, error = load(s, 'b', w.adapter('other'))
            assert status == 403 and '--lora-dir' in error['message'], error
            assert unload(s, 'a')[0] == 200
        os.mkdir(w.path('only'))   # what check names is what --lora takes: of a folder with nothing else, the file
        file = as_gguf(w.base, w.adapter('tuned'), w.path('only', 'x.gguf'))
        rc, out, err = run('check', w.path('only'))
        assert rc == 0 and out.rstrip().endswith(f'NAME={file}'), (out, err)
        for flags, why in ((('--lora', 'tuned'), '--lora tuned: expected NAME=PATH'), (('--lora', 'a=/nowhere'), '/nowhere/adapter_config.json'),
                           (('--lora', f'final={w.adapter("tuned")}'), 'that is what the model itself is called'),
                           (('--lora', f'a={w.adapter("tuned")}', '--lora-rank-max', '3'), 'has rank 4, expected at most 3'),
                           (('--lora', f'a={w.adapter("tuned")}', '--lora', f'a={w.adapter("other")}'), "the adapter 'a' is loaded already")):
            rc, _, err = run('serve', '--model', w.base, '--port', '0', *flags)
            assert rc != 0 and why in err, (rc, why, err)
        # Adapters are held against the model before its weights are looked at: these are not there.
        os.mkdir(w.path('weightless'))
        for name in ('config.json', 'tokenizer.json'):
            shutil.copy(os.path.join(w.base, name), w.path('weightless'))
        shutil.copytree(w.adapter('tuned'), w.path('wide'))
        config = {'r': 5, 'lora_alpha': 1, 'peft_type': 'LORA'}
        with open(w.path('wide', 'adapter_config.json'), 'w', encoding='utf-8') as f:
            json.dump(config, f)
        for command in (['serve', '--port', '0'], ['generate', '--prompt', 'x'], ['score'], ['plan']):
            for adapter, why in ((w.path('wide'), ', expected [5, 64]'), (w.adapter('tuned'), 'model.safetensors')):
                rc, _, err = run(*command, '--model', w.path('weightless'), '--lora', f'a={adapter}')
                assert rc != 0 and why in err and ('--lora' in err) == (adapter == w.path('wide')), (command, rc, err)
        rc, out, err = run('plan', '--model', w.base, '--lora-slots', '3', '--lora-rank-max', '8', '--json')
        planned = json.loads(out)
        # Ranks 8 of q, k, v, o (64 + 64, 64 + 32, 64 + 32, 64 + 64), gate and up (64 + 128), down (128 + 64) in two layers, three slots of f32.
        slots = 3 * 2 * 8 * 4 * (2 * 128 + 2 * 96 + 3 * 192)
        shared = planned['lora_bytes'] - slots
        assert rc == 0 and 0 < shared < 2 ** 20, (planned, slots, err)


if __name__ == '__main__':
    main(globals())
