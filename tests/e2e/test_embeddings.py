#!/usr/bin/env python3
"""Embedding models as they are published: without their head, with stages of sentence-transformers beside them; and with an adapter."""
import base64
import json
import math
import os
import random
import shutil
import struct
import tempfile

from lib import ROOT, Server, another_order, main, release_only, run
from test_quantized_files import write_tensors

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
TEXTS = ['What is the capital of France?', 'a', 'Cats sleep most of the day. ' * 9]


class Copy(tempfile.TemporaryDirectory):
    """The bundled model in a directory of its own."""

    def __enter__(self):
        self.dir = os.path.join(super().__enter__(), 'model')
        shutil.copytree(TINY, self.dir)
        return self

    def json(self, name, value):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(value, f)

    def stages(self, *types):
        self.json('modules.json', [{'idx': i, 'name': str(i), 'path': f'{i}_{t}' if i else '', 'type': f'sentence_transformers.models.{t}'}
                                   for i, t in enumerate(('Transformer', 'Pooling', *types))])
        self.json('1_Pooling/config.json', {'word_embedding_dimension': 256, 'pooling_mode_mean_tokens': True})

    def without_head(self):
        """As AutoModel saves it: bare names, the bare class."""
        with open(os.path.join(TINY, 'config.json'), encoding='utf-8') as f:
            self.json('config.json', {**json.load(f), 'architectures': ['LlamaModel']})
        with open(os.path.join(TINY, 'model.safetensors'), 'rb') as f:
            n = struct.unpack('<Q', f.read(8))[0]
            header, data = json.loads(f.read(n)), f.read()
        text = json.dumps({k.removeprefix('model.'): v for k, v in header.items()}).encode()
        with open(os.path.join(self.dir, 'model.safetensors'), 'wb') as f:
            f.write(struct.pack('<Q', len(text)) + text + data)


def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def numbers(vector):
    data = base64.b64decode(vector)
    return struct.unpack(f'<{len(data) // 4}f', data)


def vectors(s, **more):
    status, answer = s.post('/v1/embeddings', {'input': TEXTS, 'encoding_format': 'base64', **more})
    assert status == 200, answer
    return [d['embedding'] for d in answer['data']]


def test_a_model_published_without_its_head_gives_the_same_vectors_and_refuses_text():
    with Server(model=TINY) as s:
        want = vectors(s)
        assert s.post('/v1/completions', {'prompt': 'a', 'max_tokens': 2})[0] == 200
    with Copy() as m:
        m.without_head()
        with Server(model=m.dir) as s:
            assert vectors(s) == want
            for path, body in (('/v1/completions', {'prompt': 'a'}), ('/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'a'}]})):
                status, answer = s.post(path, body)
                assert status == 400 and answer['error']['param'] == 'model' and '/v1/embeddings' in answer['error']['message'], answer
        rc, out, err = run('generate', '--model', m.dir, '--prompt', 'Once')
        assert rc == 4 and 'embeddings' in err, (rc, out, err)
        rc, out, err = run('check', m.dir)
        assert rc == 0 and 'none: it makes embeddings (/v1/embeddings), no text' in out, (rc, out, err)


@release_only
def test_two_processes_give_the_vectors_of_one_but_for_rounding_and_the_same_bytes_every_time():
    """Bound: twice what another order of additions does, as in tests/e2e/test_tensor_parallel.py, and what rounding numbers below 1 to f32 adds, twice."""
    other, share = another_order(512)
    texts = TEXTS + [f'{i} cats sleep on {i * i} mats.' for i in range(12)]
    with Copy() as m:
        m.without_head()
        got = []
        exact = ['--dtype', 'f32']
        for args in ([*exact, '--tensor-parallel', '2'], [*exact, '--tensor-parallel', '2'], exact, other):
            with Server(*args, model=m.dir) as s:
                got.append(vectors(s, input=texts))
                assert vectors(s, input=texts[2:3])[0] == got[-1][2]
    two, again, one, moved_one = ([numbers(v) for v in each] for each in got)
    assert two == again
    moved, found = (max(abs(a - b) for x, y in zip(one, each) for a, b in zip(x, y)) for each in (moved_one, two))
    moved *= share
    print(f'   two processes differ by {found:.1e}, another order by {moved:.1e}')
    assert 0 < found <= 2 * moved + 2 * 2 ** -25, (found, moved)


def test_a_stage_that_is_not_computed_ends_embeddings_and_not_the_server():
    with Copy() as m:
        m.stages('LSTM', 'Normalize')
        with Server(model=m.dir) as s:
            assert s.post('/v1/completions', {'prompt': 'a', 'max_tokens': 2})[0] == 200
            status, answer = s.post('/v1/embeddings', {'input': 'a'})
            assert status == 400 and '2_LSTM (LSTM)' in answer['error']['message'] and '--pooling' in answer['error']['message'], answer
            assert m.dir not in answer['error']['message'] and '2_LSTM (LSTM)' in s.stderr(), answer
        with Server('--pooling', 'mean', model=m.dir) as s:
            left_out = vectors(s)
            assert 'left out' in s.stderr()
        m.stages('Normalize')
        with Server(model=m.dir) as s:
            assert vectors(s) == left_out


def dense(x, weight, bias, act):
    return [act(sum(w * v for w, v in zip(row, x)) + b) for row, b in zip(weight, bias)]


def test_dense_stages_are_computed_behind_pooling_before_the_vector_is_cut_and_normalised():
    r = random.Random(7)
    sizes, acts = ((256, 24), (24, 10)), (math.tanh, lambda v: v)
    weights = [([[f32(r.gauss(0, 0.2)) for _ in range(i)] for _ in range(o)], [f32(r.gauss(0, 0.5)) for _ in range(o)]) for i, o in sizes]
    with Copy() as m:
        m.stages()
        with Server(model=m.dir) as s:
            pooled = [numbers(v) for v in vectors(s)]
        m.stages('Dense', 'Dense', 'Normalize')
        for k, ((i, o), (weight, bias), act) in enumerate(zip(sizes, weights, ('activation.Tanh', 'linear.Identity')), 2):
            m.json(f'{k}_Dense/config.json', {'in_features': i, 'out_features': o, 'bias': True, 'activation_function': f'torch.nn.modules.{act}'})
            write_tensors(os.path.join(m.dir, f'{k}_Dense', 'model.safetensors'),
                          {'linear.weight': ('F32', [o, i], struct.pack(f'<{o * i}f', *sum(weight, []))), 'linear.bias': ('F32', [o], struct.pack(f'<{o}f', *bias))})
        with Server(model=m.dir) as s:
            whole, cut, alone = vectors(s), vectors(s, dimensions=3), [vectors(s, input=t)[0] for t in TEXTS]
            status, answer = s.post('/v1/embeddings', {'input': 'a', 'dimensions': 11})
            assert status == 400 and 'between 1 and 10' in answer['error']['message'], answer
        assert whole == alone
        for x, y, z in zip(pooled, whole, cut):
            for (weight, bias), act in zip(weights, acts):
                x = dense(x, weight, bias, act)
            for got, n in ((numbers(y), 10), (numbers(z), 3)):
                length = math.sqrt(sum(v * v for v in x[:n]))
                # Sums of 256 products in f32, sixteen at a time: some 24 roundings of 2^-24 of numbers near 1, and a second stage.
                assert len(got) == n and max(abs(a - b / length) for a, b in zip(got, x)) < 1e-5, (got, x)
        rc, out, err = run('plan', '--model', m.dir)
        assert rc == 0 and 'stages behind it, for embeddings' in out, (out, err)


if __name__ == '__main__':
    main(globals())
