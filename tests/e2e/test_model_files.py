"""test_model_files.py - model files with one thing wrong, over the commands that open a model: exit statuses and verdicts."""
import concurrent.futures
import json
import os
import shutil
import struct
import tempfile

from lib import ROOT, main, run

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
COMMANDS = (('check',), ('plan',), ('generate', '--prompt-ids', '1', '-n', '1'), ('score',), ('serve', '--port', '0'))
U8, U32, F32, BOOL, STRING, ARRAY = 0, 4, 6, 7, 8, 9


def text(s):
    return struct.pack('<Q', len(s)) + s


def key(name, kind, value):
    return text(name) + struct.pack('<I', kind) + value


def tensor(name, dims=(8,), kind=0, offset=0, n_dims=None):
    return text(name) + struct.pack('<I', len(dims) if n_dims is None else n_dims) + struct.pack(f'<{len(dims)}QIQ', *dims, kind, offset)


def array(of, count, values=b''):
    return struct.pack('<IQ', of, count) + values


def gguf(keys=(), tensors=(), version=3, n_keys=None, n_tensors=None, data=bytes(64)):
    keys = (key(b'general.architecture', STRING, text(b'llama')), *keys)
    head = b'GGUF' + struct.pack('<IQQ', version, len(tensors) if n_tensors is None else n_tensors, len(keys) if n_keys is None else n_keys)
    head += b''.join(keys) + b''.join(tensors)
    return head + bytes(-len(head) % 32) + data


NESTED = array(ARRAY, 1, array(ARRAY, 1, array(ARRAY, 1, array(ARRAY, 1, array(ARRAY, 1, array(U8, 0))))))
BAD_GGUF = {
    'no magic': b'GGUX' + gguf()[4:], 'nothing behind the magic': b'GGUF', 'version 1': gguf(version=1), 'version 4': gguf(version=4),
    'big-endian': gguf(version=0x03000000), 'more keys than are read': gguf(n_keys=1 << 17, data=bytes(1 << 21)), 'keys without bytes': gguf(n_keys=1000),
    'keys without number': gguf(n_keys=1 << 63), 'more tensors than are read': gguf(n_tensors=1 << 19, data=bytes(1 << 25)),
    'tensors without bytes': gguf(n_tensors=1000), 'cut in a key': gguf()[:40], 'a key\'s name too long': gguf([key(b'k' * 65536, U8, b'1')]),
    'a key\'s name behind the end': gguf([struct.pack('<Q', 60000)]), 'a kind of key that is none': gguf([key(b'k', 13, b'1234')]),
    'a key that is there twice': gguf([key(b'k', U8, b'1')] * 2), 'a truth value of 2': gguf([key(b'k', BOOL, b'\2')]),
    'a string behind the end': gguf([key(b'k', STRING, struct.pack('<Q', 1 << 40))]), 'an array of kind 13': gguf([key(b'k', ARRAY, array(13, 1))]),
    'an array behind the end': gguf([key(b'k', ARRAY, array(U32, 1 << 40))]), 'arrays too deep': gguf([key(b'k', ARRAY, NESTED)]),
    'an alignment of 3': gguf([key(b'general.alignment', U32, struct.pack('<I', 3))]),
    'an alignment of a kind that is none': gguf([key(b'general.alignment', F32, b'1234')]),
    'a tensor\'s name too long': gguf(tensors=[tensor(b't' * 257)]), 'a tensor without a name': gguf(tensors=[tensor(b'')]),
    'a tensor\'s name that is no text': gguf(tensors=[tensor(b'\xff')]), 'no dimension': gguf(tensors=[tensor(b't', ())]),
    'five dimensions': gguf(tensors=[tensor(b't', (1,) * 5)]), 'a dimension of 0': gguf(tensors=[tensor(b't', (0,))]),
    'dimensions with too large a product': gguf(tensors=[tensor(b't', (1 << 40, 1 << 40))]), 'an unknown type': gguf(tensors=[tensor(b't', kind=99)]),
    'rows that are no blocks': gguf(tensors=[tensor(b't', kind=2)]), 'an offset that is not aligned': gguf(tensors=[tensor(b't', offset=4)]),
    'a tensor behind the end': gguf(tensors=[tensor(b't', offset=64)]), 'a tensor that is there twice': gguf(tensors=[tensor(b't'), tensor(b't', offset=32)]),
    'tensors that share bytes': gguf(tensors=[tensor(b't'), tensor(b'u')]), 'nothing of a model': gguf(),
    'no layers': gguf([key(b'llama.block_count', U32, struct.pack('<I', 0))]),
}


def header(entries, data=bytes(32)):
    h = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack('<Q', len(h)) + h + data


ENTRY = {'dtype': 'F32', 'shape': [8], 'data_offsets': [0, 32]}
BAD_SAFETENSORS = {
    'empty': b'', 'no header': b'\1' * 4, 'a header behind the end': struct.pack('<Q', 1 << 40), 'no JSON': header(b'{"t":'),
    'JSON too deep': header(b'{"t":' + b'[' * 1000), 'a name too long': header({'t' * 5000: ENTRY}), 'an unknown type': header({'t': {**ENTRY, 'dtype': 'Q9'}}),
    'too many dimensions': header({'t': {**ENTRY, 'shape': [1] * 20}}), 'offsets behind the end': header({'t': {**ENTRY, 'data_offsets': [0, 64]}}),
    'offsets that do not fit the shape': header({'t': {**ENTRY, 'data_offsets': [0, 16]}}), 'none of the model\'s tensors': header({'t': ENTRY}),
    'a pointer of git LFS': b'version https://git-lfs.github.com/spec/v1\noid sha256:' + b'0' * 64 + b'\nsize 5\n',
}
BAD_CONFIG = {
    'empty': b'', 'no JSON': b'{', 'no object': b'[]', 'JSON too deep': b'{"a":' + b'[' * 1000 + b']' * 1000 + b'}', 'too large': b' ' * (5 << 20) + b'{}',
    'too many values': b'{"a":[' + b'1,' * 3000000 + b'1]}', 'no architecture': b'{}', 'not UTF-8': b'{"a":"\xff"}',
}
BAD_TOKENIZER = {**{k: v for k, v in BAD_CONFIG.items() if k != 'too large'}, 'no model': b'{"model":null}'}


def expect_4(path, what):
    for command in COMMANDS:
        rc, out, err = run(command[0], '--model', path, *command[1:], stdin='{"prompt":"x"}\n', timeout=30)
        told = out if command[0] == 'check' else err
        assert rc == 4 and (path in told or 'tensors in the files' in told), (what, command[0], rc, out, err)
        assert 'would not run it' in told if command[0] == 'check' else told.startswith(f'quire {command[0]}: '), (what, told)


def test_a_damaged_gguf_file_ends_every_command_with_4():
    with tempfile.TemporaryDirectory() as d:
        for what, blob in BAD_GGUF.items():
            path = os.path.join(d, 'm.gguf')
            with open(path, 'wb') as f:
                f.write(blob)
            expect_4(path, what)


def test_a_damaged_file_of_a_directory_ends_every_command_with_4():
    with tempfile.TemporaryDirectory() as d:
        for name, table in (('model.safetensors', BAD_SAFETENSORS), ('config.json', BAD_CONFIG), ('tokenizer.json', BAD_TOKENIZER)):
            path = os.path.join(d, name)
            shutil.copytree(TINY, d, dirs_exist_ok=True)
            for what, blob in table.items():
                with open(path, 'wb') as f:
                    f.write(blob)
                expect_4(d, f'{name}: {what}')


def test_a_damaged_adapter_ends_every_command_with_4():
    settings = b'{"peft_type":"LORA","target_modules":["q_proj"],"r":%s,"lora_alpha":%s}'
    named = {'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight': ENTRY}
    good = settings % (b'8', b'8')
    cases = [(config, header(named)) for config in (b'', b'{', b'[]', b'[' * 1000, settings % (b'0', b'8'), settings % (b'8', b'"x"'))]
    cases += [(good, blob) for blob in (*BAD_SAFETENSORS.values(), header({}), header(named), header({'t' * 300: ENTRY}))]
    with tempfile.TemporaryDirectory() as d:
        for config, weights in cases:
            for name, blob in (('adapter_config.json', config), ('adapter_model.safetensors', weights)):
                with open(os.path.join(d, name), 'wb') as f:
                    f.write(blob)
            for args in (('check', d), ('generate', '--model', TINY, '--prompt', 'x', '--lora', d), ('serve', '--model', TINY, '--port', '0', '--lora', f'a={d}')):
                rc, out, err = run(*args, timeout=30)
                assert rc == 4 and d in (out if args[0] == 'check' else err), (config, weights[:80], args, rc, out, err)


# What may lie beside a model and is read where it is there, or is not read at all.
BESIDE = ('special_tokens_map.json', 'generation_config.json', 'tokenizer_config.json', 'chat_template.jinja', 'chat_template.json', 'added_tokens.json',
          'additional_chat_templates/tool_use.jinja', 'quantize_config.json', 'modules.json', 'model.safetensors.index.json')


def put(blob):
    def write(path):
        with open(path, 'wb') as f:
            f.write(blob)
    return write


KINDS = {
    'empty': put(b''), 'garbage': put(bytes(range(256))), 'a directory': os.mkdir, 'a loop': lambda path: os.symlink(os.path.basename(path), path),
    'a device': lambda path: os.symlink('/dev/null', path), 'a pipe': os.mkfifo, 'a link to nothing': lambda path: os.symlink('nothing', path),
    'unreadable': lambda path: (put(b'{}')(path), os.chmod(path, 0)),
}
# check's verdict, and how generate and serve end (None: serve is not started).
VERDICTS = (('quire runs it', 0, 0, None), ('generates with it, but would not serve it', 4, 0, 4), ('quire would not run it', 4, 4, 4))


def expect_agreement(case):
    name, kind = case
    with tempfile.TemporaryDirectory() as d:
        for f in os.listdir(TINY):
            if f != name:
                os.symlink(os.path.join(TINY, f), os.path.join(d, f))
        path = os.path.join(d, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        KINDS[kind](path)
        checked, report, _ = run('check', d)
        verdict = [v for v in VERDICTS if v[0] in report]
        assert len(verdict) == 1 and checked == verdict[0][1], (case, checked, report)
        rc, _, err = run('generate', '--model', d, '--prompt', 'x', '-n', '1')
        assert rc == verdict[0][2], (case, verdict, rc, err)
        if verdict[0][3]:
            rc, _, err = run('serve', '--model', d, '--port', '0', timeout=30)
            assert rc == verdict[0][3], (case, verdict, rc, err)
    return verdict[0][0]


def test_check_says_of_every_kind_of_file_beside_a_model_what_generate_and_serve_do():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        verdicts = set(pool.map(expect_agreement, [(name, kind) for name in BESIDE for kind in KINDS]))
    assert verdicts == {v[0] for v in VERDICTS}, verdicts


if __name__ == '__main__':
    main(globals(), at_once=2)
