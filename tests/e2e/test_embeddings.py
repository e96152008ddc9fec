#!/usr/bin/env python3
"""Embedding models as they are published: without their head, with stages of sentence-transformers beside them; and with an adapter."""
import json
import os
import shutil
import struct
import tempfile

from lib import ROOT, Server, main, run

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
        assert rc == 0 and 'none: it makes embeddings, no text' in out, (rc, out, err)


def test_a_stage_that_is_not_computed_ends_embeddings_and_not_the_server():
    with Copy() as m:
        m.stages('Dense', 'Normalize')
        with Server(model=m.dir) as s:
            assert s.post('/v1/completions', {'prompt': 'a', 'max_tokens': 2})[0] == 200
            status, answer = s.post('/v1/embeddings', {'input': 'a'})
            assert status == 400 and '2_Dense (Dense)' in answer['error']['message'] and '--pooling' in answer['error']['message'], answer
            assert m.dir not in answer['error']['message'] and '2_Dense (Dense)' in s.stderr(), answer
        with Server('--pooling', 'mean', model=m.dir) as s:
            left_out = vectors(s)
            assert 'left out' in s.stderr()
        m.stages('Normalize')
        with Server(model=m.dir) as s:
            assert vectors(s) == left_out


if __name__ == '__main__':
    main(globals())
