#!/usr/bin/env python3
"""Models by name, against a hub on loopback (hub.py): what is fetched, what is kept, what is said when something is wrong."""
import glob
import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import tempfile
import time

from hub import Hub, Model
from lib import QUIRE, ROOT, SLOW, Server, environment, main

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
SMALL = {'config.json': '{"model_type": "llama"}', 'tokenizer.json': '{"version": "1.0"}', 'model.safetensors': b'w' * 5000}
GGUFS = {'a-Q4_K_M.gguf': b'4' * 3000, 'a-Q4_K_S.gguf': b'5' * 2500, 'a-Q8_0.gguf': b'8' * 6000, 'mmproj-a-f16.gguf': b'm' * 100, 'README.md': 'x',
         'big/a-BF16-00001-of-00002.gguf': b'1' * 1500, 'big/a-BF16-00002-of-00002.gguf': b'2' * 1600}


class Home:
    """A user's directory: where the program runs and keeps its models."""

    def __init__(self, hub, **env):
        self.hub, self.temp = hub, tempfile.TemporaryDirectory()
        self.dir = self.temp.name
        self.cache = f'{self.dir}/hf/hub'
        self.env = {'HF_HOME': f'{self.dir}/hf', 'HF_ENDPOINT': hub.endpoint if hub else 'http://127.0.0.1:9', 'HF_HUB_OFFLINE': '', 'HF_TOKEN': '',
                    'HF_HUB_CACHE': '', 'HUGGING_FACE_HUB_TOKEN': '', 'no_proxy': '*', **env}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.temp.cleanup()

    def start(self, *args, env=None, **more):
        return subprocess.Popen([QUIRE, *args], cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment({**self.env, **(env or {})}), **more)

    def run(self, *args, env=None, **more):
        p = self.start(*args, env=env, **more)
        out, err = p.communicate(timeout=60 * SLOW)
        assert 'Sanitizer' not in err and 'runtime error' not in err, err[-3000:]
        return p.returncode, out, err

    def files(self, name='a/b'):
        """What the cache has of a model: its path in a snapshot -> its bytes; links are checked on the way."""
        found = {}
        base = f'{self.cache}/models--{name.replace("/", "--")}'
        for path in glob.glob(f'{base}/snapshots/*/**', recursive=True):
            if os.path.isdir(path):
                continue
            target = os.readlink(path)
            assert not os.path.isabs(target) and os.path.dirname(os.path.realpath(path)) == os.path.realpath(f'{base}/blobs'), (path, target)
            found['/'.join(path[len(base):].split('/')[3:])] = open(path, 'rb').read()
        return found

    def blobs(self, name='a/b'):
        return sorted(os.listdir(f'{self.cache}/models--{name.replace("/", "--")}/blobs'))


def test_pull_fetches_what_a_model_needs_and_nothing_else():
    needed = {**SMALL, 'generation_config.json': '{}', 'tokenizer_config.json': '{}', 'special_tokens_map.json': '{}', 'chat_template.jinja': 'x', 'empty.json': '',
              'modules.json': '[]', '1_Pooling/config.json': '{}', '2_Dense/model.safetensors': b'd' * 50, 'additional_chat_templates/tool_use.jinja': 'y'}
    del needed['empty.json']
    useless = {'pytorch_model.bin': b'p' * 2000, 'model.pth': 'p', 'onnx/model.onnx': 'o', 'README.md': 'r', 'consolidated.safetensors': b'c' * 3000, 'run.py': 'p',
               'original/model.safetensors': b'o' * 2000, 'model-00001-of-00001.safetensors': b'q' * 100, '.gitattributes': 'g', 'config.json.bak': 'b'}
    model = Model({**useless, **needed})
    with Hub({'a/b': model}, page=5) as hub, Home(hub) as home:
        rc, out, err = home.run('pull', 'a/b')
        snapshot = f'{home.cache}/models--a--b/snapshots/{model.commit}'
        assert (rc, out) == (0, snapshot + '\n'), (rc, out, err)
        assert home.files() == {path: model.files[path] for path in needed}
        assert home.blobs() == sorted({model.hash_of(path) for path in needed})
        assert open(f'{home.cache}/models--a--b/refs/main').read() == model.commit
        assert os.readlink(f'{snapshot}/1_Pooling/config.json') == f'../../../blobs/{model.hash_of("1_Pooling/config.json")}'
        assert os.path.exists(f'{home.cache}/.locks/models--a--b/{model.hash_of("config.json")}.lock')
        before = err.index('fetching a/b (revision main, ')
        assert f'{len(needed)} of {len(needed)} files' in err and before < err.index('config.json, 23 B') < err.index('fetched 5.'), err
        assert len(hub.asked('hub', '/tree/')) == 5 and not hub.asked('files', 'original')
        n = len(hub.requests)
        rc, again, err = home.run('pull', 'a/b')
        assert (rc, again) == (0, out) and 'is in the cache' in err and len(hub.asked('hub', '/resolve/')) == len(home.blobs()), err
        assert len(hub.requests) == n + 6, 'the list is asked for, and no file'


def test_an_index_brings_its_shards_and_a_lacking_one_alone_is_fetched():
    shards = {f'model-0000{i}-of-00003.safetensors': bytes([i]) * 2000 for i in (1, 2, 3)}
    index = json.dumps({'weight_map': {f't{i}': name for i, name in enumerate(shards)}})
    model = Model({'config.json': '{}', 'tokenizer.json': '{}', 'model.safetensors.index.json': index, **shards})
    with Hub({'a/b': model}) as hub, Home(hub) as home:
        rc, out, err = home.run('pull', 'a/b')
        assert rc == 0 and set(home.files()) == set(model.files), err
        assert home.run('check', 'a/b')[0] == 4 and len(hub.asked('hub', '/api/')) == 2, 'a complete model is not asked for again'
        lost = f'{home.cache}/models--a--b/blobs/{model.hash_of("model-00002-of-00003.safetensors")}'
        os.remove(lost)
        rc, out, err = home.run('check', 'a/b', '--offline')
        assert rc == 4 and 'in part only' in err and 'hf download a/b' in err, err
        rc, out, err = home.run('check', 'a/b')
        assert '1 of 6 files, 2.0 KiB' in err and os.path.getsize(lost) == 2000 and len(hub.asked('files', '')) == 4, err


def test_a_gguf_is_chosen_by_its_path_or_a_part_of_it():
    both = ['big/a-BF16-00001-of-00002.gguf', 'big/a-BF16-00002-of-00002.gguf']
    for name, says in (('a/b:Q8_0', ['a-Q8_0.gguf']), ('a/b:q4_k_m', ['a-Q4_K_M.gguf']), ('a/b:a-Q4_K_S.gguf', ['a-Q4_K_S.gguf']), ('a/b:BF16', both),
                       ('a/b:big/a-BF16-00001-of-00002.gguf', both),
                       ('a/b', (2, 'a/b: 4 GGUF files fit: name one', '2.9 KiB  a-Q4_K_M.gguf', '3.0 KiB  big/a-BF16-00001-of-00002.gguf')),
                       ('a/b:Q4', (2, 'a/b:Q4: 2 GGUF files fit', 'a-Q4_K_S.gguf')), ('a/b:Q2', (4, "no GGUF file has 'Q2' in its name", 'a-Q8_0.gguf')),
                       ('a/b:big/a-BF16-00002-of-00002.gguf', (4, 'no GGUF file has')), ('a/b:README.md', (2, 'expected a *.gguf')),
                       ('one/g', ['x.gguf']), ('pt/g', (4, 'pytorch_model.bin may be pickle')), ('no/g', (4, 'holds no model'))):
        with Hub({'a/b': Model(GGUFS), 'one/g': Model({'x.gguf': b'GGUF', 'config.json': '{}'}), 'pt/g': Model({'config.json': '{}', 'pytorch_model.bin': 'p'}),
                  'no/g': Model({'README.md': ''})}) as hub, Home(hub) as home:
            rc, out, err = home.run('pull', name)
            if isinstance(says, list):
                repo = name.split(':')[0]
                assert rc == 0 and sorted(home.files(repo)) == says and out.endswith(f'/{says[0]}\n'), (name, rc, err)
                assert name != 'a/b:BF16' or home.run('pull', name, '--offline')[:2] == (0, out)
            else:
                assert rc == says[0] and not out and all(text in err for text in says[1:]) and 'mmproj' not in err and not os.path.exists(home.cache), (name, rc, err)


def test_a_bad_connection_is_gone_on_with():
    weights = 'model.safetensors'
    for faults, n_gets in ((['cut'], 2), (['cut', 'cut', 'cut'], 4), ([503, 429, 500], 4), (['cut', 'no range'], 2), (['moved', None], 3), (['cut', 502, 'cut'], 4)):
        with Hub({'a/b': Model(SMALL)}) as hub, Home(hub) as home:
            hub.faults[weights] = list(faults)
            rc, _, err = home.run('pull', 'a/b')
            gets = hub.asked('files', weights)
            assert rc == 0 and home.files()[weights] == SMALL[weights] and len(gets) == n_gets, (faults, rc, err, gets)
            if faults[0] == 'cut':
                assert gets[1][1]['Range'] == 'bytes=2500-' and gets[1][1]['If-Match'].startswith('"etag-of'), gets[1]


def test_what_the_hub_refuses_is_said_with_what_to_do():
    ok = {'a/b': Model(SMALL)}
    evil = [{'type': 'file', 'oid': '0' * 40, 'size': 3, 'path': path} for path in ('../../x', '/etc/x', 'a/../../x', 'x\n')]
    entry = {'type': 'file', 'oid': '0' * 40, 'size': 3, 'path': 'config.json'}
    weights = 'model.safetensors'
    for case, set_up, code, says in (
            ('a name that is none', {'args': ['nob/x']}, 4, ("nob/x is no model of the hub", "did you mean 'a/b'?")),
            ('no such revision', {'args': ['a/b', '--revision', 'v9']}, 4, ('has no such revision',)),
            ('a bad revision', {'args': ['a/b', '--revision', '../x']}, 2, ('expected a branch, a tag or a commit',)),
            ('gated, no token', {'token': 'hf_x', 'gated': True}, 1, ('is gated: accept its licence', 'HF_TOKEN', '/a/b answers 401')),
            ('gated, a token without access', {'token': 'hf_x', 'gated': True, 'env': {'HF_TOKEN': 'hf_y'}}, 1, ('has no access yet',)),
            ('private', {'token': 'hf_x'}, 1, ('not a model that everyone may see', 'set HF_TOKEN')),
            ('a wrong token', {'token': 'hf_x', 'env': {'HF_TOKEN': 'hf_y'}}, 1, ('does not take the token',)),
            ('a token of two lines', {'env': {'HF_TOKEN': 'a\nX: y'}}, 2, ('the token of HF_TOKEN has a space',)),
            ('wrong bytes', {'faults': {weights: ['wrong']}}, 4, ('model.safetensors: what came has the hash', 'was removed')),
            ('wrong bytes of a small file', {'faults': {'config.json': ['wrong']}}, 4, ('config.json: what came has the hash', 'was removed')),
            ('more bytes', {'faults': {weights: ['longer']}}, 4, ('sends more than the 5000 bytes',)),
            ('a file that is not there', {'faults': {weights: [404]}}, 4, ('model.safetensors: the hub answers 404 (no^[[2J)',)),
            ('a small file that is not there', {'faults': {'config.json': [404]}}, 4, ('config.json: the hub answers 404',)),
            ('never well', {'faults': {'config.json': [503] * 8}}, 4, ('config.json: the hub answers 503',)),
            ('no JSON', {'bad': {'tree': b'[{]'}}, 4, ("the hub's list of files",)),
            ('no list', {'bad': {'tree': {}}}, 4, ('expected an array',)),
            ('no commit', {'bad': {'revision': {'sha': '../../..'}}}, 4, ('names no commit',)),
            ('no hash', {'bad': {'tree': [{**entry, 'oid': '../x'}]}}, 4, ('without a hash',)),
            ('too large', {'bad': {'tree': [{**entry, 'size': 1 << 60}]}}, 4, ('bytes as file 1',)),
            ('a negative size', {'bad': {'tree': [{**entry, 'size': -1}]}}, 4, ('bytes as file 1',)),
            ('no room', {'bad': {'tree': [{**entry, 'size': 1 << 49}, {**entry, 'path': weights}]}}, 5, ('has room for', 'quire rm')),
            ('pages of another host', {'page': 1, 'bad': {'next': 'http://127.0.0.1:9'}}, 4, ('goes on at another host',)),
            ('a redirect without an end', {'bad': {'location': '/a/b/resolve/main/model.safetensors'}}, 4, ('redirects (302) again and again',)),
            ('a redirect to a file', {'bad': {'location': 'file:///etc/passwd'}}, 4, ('to what is no http(s) URL',)),
            *((f'a path {e["path"]!r}', {'bad': {'tree': [entry, e]}}, 4, ("expected a path inside the model's directory",)) for e in evil)):
        if SLOW > 1 and 'tree' in set_up.get('bad', {}) and case != 'no room':
            continue  # sanitized, tests/fuzz/fuzz_hub.c has what a list may be
        with Hub(ok, page=set_up.get('page', 1000)) as hub, Home(hub) as home:
            hub.token, hub.gated, hub.near = set_up.get('token'), set_up.get('gated', False), ['a/b'] if 'nob' in str(set_up) else []
            hub.faults, hub.bad = set_up.get('faults', {}), set_up.get('bad', {})
            rc, out, err = home.run('pull', *set_up.get('args', ['a/b']), env=set_up.get('env'))
            assert rc == code and not out and all(text in err for text in says) and 'hf_x' not in err and 'hf_y' not in err, (case, rc, err)
            assert not os.path.exists(f'{home.cache}/models--a--b/refs') and not glob.glob(f'{home.dir}/x*'), case
            left = [b for b in home.blobs() if b.startswith(ok['a/b'].hash_of(weights))] if os.path.exists(f'{home.cache}/models--a--b/blobs') else []
            assert case != 'wrong bytes' or not left, (case, left)


def test_the_token_goes_to_the_hub_alone():
    with Hub({'a/b': Model(SMALL)}) as hub, Home(hub) as home:
        hub.token = 'hf_secret'
        os.makedirs(f'{home.dir}/hf')
        with open(f'{home.dir}/hf/token', 'w') as f:
            f.write('hf_secret\n')
        rc, _, err = home.run('pull', 'a/b')
        assert rc == 0 and 'hf_secret' not in err, err
        assert all('Authorization' in headers for _, headers in hub.asked('hub', '/'))
        assert len(hub.asked('files', '/')) == 1 and not any('Authorization' in headers for _, headers in hub.asked('files', '/'))
        for name in ('HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN'):
            hub.token = 'hf_other'
            assert home.run('pull', 'a/b', env={name: 'hf_other'})[0] == 0, name


def test_an_interrupted_pull_keeps_what_came_and_the_next_one_goes_on():
    weights, model = 'model.safetensors', Model(SMALL)
    with Hub({'a/b': model}) as hub, Home(hub) as home:
        hub.faults[weights] = ['slow']
        p = home.start('pull', 'a/b')
        assert hub.half_sent.wait(30)
        partial = f'{home.cache}/models--a--b/blobs/{model.hash_of(weights)}.incomplete'
        while not os.path.exists(partial) or os.path.getsize(partial) < 2500:
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=30)
        assert p.returncode == 130 and not out and 'interrupted' in err and 'the same command goes on from there' in err, (p.returncode, err)
        assert os.path.getsize(partial) == 2500 and not os.path.exists(f'{home.cache}/models--a--b/refs/main')
        rc, out, err = home.run('list')
        assert rc == 0 and re.search(r'^a/b +- +2\.4 KiB .*unfinished$', out, re.M), out
        rc, out, err = home.run('pull', 'a/b')
        assert rc == 0 and home.files() == model.files and 'of which 2.4 KiB are there' in err, err
        assert hub.asked('files', weights)[-1][1]['Range'] == 'bytes=2500-'
        # What is there is of another program, and is not the file's beginning.
        os.remove(partial.removesuffix('.incomplete'))
        with open(partial, 'wb') as f:
            f.write(b'?' * 100)
        rc, out, err = home.run('pull', 'a/b')
        assert rc == 0 and home.files() == model.files and 'fetched from the begin' in err, err


def test_two_pulls_at_once_fetch_each_file_once():
    model = Model(SMALL)
    with Hub({'a/b': model}) as hub, Home(hub) as home:
        hub.faults['model.safetensors'] = ['slow']
        one = home.start('pull', 'a/b')
        assert hub.half_sent.wait(30)
        two = home.start('pull', 'a/b')
        while len(hub.asked('hub', '/tree/')) < 2:
            time.sleep(0.01)
        time.sleep(0.1)
        hub.go_on.set()
        ends = [p.communicate(timeout=30) for p in (one, two)]
        assert one.returncode == two.returncode == 0 and ends[0][0] == ends[1][0], ends
        assert home.files() == model.files and len(hub.asked('files', '')) == 1


def test_a_disk_that_is_full_keeps_what_came():
    with Hub({'a/b': Model(SMALL)}) as hub, Home(hub) as home:
        rc, _, err = home.run('pull', 'a/b', preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
        assert rc == 4 and 'model.safetensors' in err and 'cannot be written: File too large (EFBIG)' in err, err
        assert home.run('pull', 'a/b')[0] == 0 and home.files() == Model(SMALL).files


def test_without_a_network_the_command_to_type_elsewhere_is_said():
    command = "hf download a/b --include '*.json' --include '*.jinja' --include 'model*.safetensors' --local-dir b"
    with Hub({'a/b': Model(SMALL)}) as hub, Home(hub) as home:
        broken = f'{home.dir}/lib'
        os.makedirs(broken)
        for name in ('libcurl.so.4', 'libcurl-gnutls.so.4'):
            open(f'{broken}/{name}', 'w').close()
        for args, env, code, says in ((('serve', 'a/b', '--offline'), {}, 4, command), (('pull', 'a/b'), {'HF_HUB_OFFLINE': '1'}, 4, command),
                                      (('plan', 'a/b'), {'HF_HUB_OFFLINE': 'yes'}, 4, command), (('serve', 'a/b', '--check-config'), {}, 4, command),
                                      (('generate', 'a/b:Q4_K_M', 'hello'), {'HF_HUB_OFFLINE': '1'}, 4, "hf download a/b --include '*Q4_K_M*' --local-dir b"),
                                      (('pull', 'a/b'), {'HF_ENDPOINT': 'http://127.0.0.1:9'}, 4, command),
                                      (('pull', 'a/b'), {'HF_ENDPOINT': 'ftp://x'}, 2, 'expected a URL'),
                                      (('pull', 'a/b'), {'LD_LIBRARY_PATH': broken}, 4, 'apt-get install libcurl4')):
            rc, out, err = home.run(*args, env=env)
            assert rc == code and not out and says in err, (args, rc, err)
        assert not hub.requests and not os.path.exists(home.cache)


def test_list_and_rm_touch_what_they_are_told_and_nothing_else():
    old = Model({**SMALL, 'config.json': '{"old": 1}'})
    with Hub({'a/b': {'main': Model(SMALL), 'v1': old}, 'g/g': Model(GGUFS)}) as hub, Home(hub) as home:
        rc, out, err = home.run('list')
        assert rc == 0 and not out and 'no models in' in err, (out, err)
        for args in (['a/b'], ['a/b', '--revision', 'v1'], ['g/g:Q8_0'], ['g/g:BF16']):
            assert home.run('pull', *args)[0] == 0
        assert len(home.blobs()) == 4, 'revisions share what is the same'
        rows = [line.split() for line in home.run('list')[1].split('\n')[1:-1]]
        assert sorted(r[:4] + r[5:] for r in rows) == [['a/b', 'main', '4.9', 'KiB', 'safetensors'], ['a/b', 'v1', '4.9', 'KiB', 'safetensors'],
                                                        ['g/g:a-Q8_0.gguf', 'main', '5.9', 'KiB', 'gguf'],
                                                        ['g/g:big/a-BF16-00001-of-00002.gguf', 'main', '3.0', 'KiB', 'gguf']], rows
        assert all(re.fullmatch(r'\d{4}-\d\d-\d\d', r[4]) for r in rows), rows
        as_json = [json.loads(line) for line in home.run('list', '--json')[1].split('\n') if line]
        assert {r['bytes'] for r in as_json} == {5041, 5028, 6000, 3100} and all(abs(r['used'] - time.time()) < 600 for r in as_json), as_json
        for args, code, says in ((['a/b'], 2, 'say --yes'), (['../a/b', '--yes'], 2, 'expected ORG/NAME'), ([home.cache, '--yes'], 2, 'expected ORG/NAME'),
                                 (['a/c', '--yes'], 4, "did you mean 'a/b'?"), (['a/b', '--revision', 'v2', '--yes'], 4, "no revision 'v2'"),
                                 (['g/g:Q2', '--yes'], 4, 'quire list'), ([], 2, 'name a model')):
            rc, _, err = home.run('rm', *args)
            assert rc == code and says in err and len(home.blobs()) == 4, (args, rc, err)
        rc, _, err = home.run('rm', 'a/b', '--revision', old.commit[:8], '--yes')
        assert rc == 0 and 'removed a/b: 3 files, 10 B' in err and home.files() == Model(SMALL).files and len(home.blobs()) == 3, err
        assert os.listdir(f'{home.cache}/models--a--b/refs') == ['main']
        assert home.run('rm', 'g/g:BF16', '--yes')[0] == 0 and list(home.files('g/g')) == ['a-Q8_0.gguf'] and len(home.blobs('g/g')) == 1
        outside = f'{home.dir}/outside'
        os.makedirs(f'{outside}/snapshots')
        os.symlink(outside, f'{home.cache}/models--s--l')
        assert home.run('rm', 's/l', '--yes')[0] == 4 and os.path.isdir(f'{outside}/snapshots')
        os.symlink(outside, f'{home.cache}/models--a--b/snapshots/{"0" * 40}')
        assert home.run('rm', 'a/b', '--yes')[0] == home.run('rm', 'g/g', '-y')[0] == 0
        assert sorted(os.listdir(home.cache)) == ['.locks', 'models--s--l'] and os.listdir(f'{home.cache}/.locks') == [] and os.path.isdir(f'{outside}/snapshots')


def test_links_in_the_cache_lead_nothing_astray():
    model = Model({**SMALL, '1_Pooling/config.json': '{}'})
    with Hub({'a/b': model}) as hub, Home(hub) as home:
        base, outside = f'{home.cache}/models--a--b', f'{home.dir}/outside'
        os.makedirs(f'{base}/snapshots/{model.commit}')
        os.makedirs(f'{base}/blobs')
        os.makedirs(outside)
        with open(f'{outside}/file', 'w') as f:
            f.write('mine')
        os.symlink(outside, f'{base}/snapshots/{model.commit}/1_Pooling')
        rc, _, err = home.run('pull', 'a/b')
        assert rc == 4 and 'expected a directory of the cache' in err and os.listdir(outside) == ['file'], err
        os.remove(f'{base}/snapshots/{model.commit}/1_Pooling')
        os.symlink(f'{outside}/file', f'{base}/blobs/{model.hash_of("tokenizer.json")}.incomplete')
        for path in glob.glob(f'{base}/blobs/{model.hash_of("tokenizer.json")}'):
            os.remove(path)
        rc, _, err = home.run('pull', 'a/b')
        assert rc == 4 and 'tokenizer.json' in err and open(f'{outside}/file').read() == 'mine', err


def test_a_terminal_sees_how_far_it_is_and_how_long_it_takes():
    with Hub({'a/b': Model({**SMALL, 'model.safetensors': b'w' * 400000})}) as hub, Home(hub) as home:
        hub.faults['model.safetensors'] = ['slow']
        master, slave = pty.openpty()
        p = subprocess.Popen([QUIRE, 'pull', 'a/b'], cwd=home.dir, stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=environment(home.env))
        os.close(slave)
        seen, end = '', time.monotonic() + 30 * SLOW
        while not re.search(r'\d of 3 files, 1\d\d\.\d KiB of 390\.\d KiB, \d+ %, .*/s, .* left', seen) and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 65536).decode()
        hub.go_on.set()
        out = p.communicate(timeout=30)[0]
        os.close(master)
        assert p.returncode == 0 and out and ' left' in seen and 'quire pull: fetching a/b' in seen, (seen, out)


def test_every_command_takes_a_name_and_a_model_that_is_there_needs_no_hub():
    model = Model({name: open(f'{TINY}/{name}', 'rb').read() for name in os.listdir(TINY) if os.path.isfile(f'{TINY}/{name}') and name != 'README.md'})
    with Hub({'org/tiny': model}) as hub, Home(hub) as home:
        with Server(model='org/tiny', env=home.env, before=('env', '-C', home.dir)) as server:
            assert 'fetching org/tiny' in server.stderr(), server.stderr()
            assert [m['id'] for m in json.loads(server.get('/v1/models')[1])['data']] == ['org/tiny']
            status, answer = server.post('/v1/completions', {'model': 'org/tiny', 'prompt': 'Once upon', 'max_tokens': 4})
            assert status == 200 and answer['model'] == 'org/tiny', answer
        n = len(hub.requests)
        line = '{"prompt": "a", "text": "a"}\n'
        for args in (['generate', 'org/tiny', 'Once', '-n', '2'], ['plan', 'org/tiny'], ['check', 'org/tiny'], ['score', 'org/tiny'], ['tokenize', 'org/tiny'],
                     ['bench', 'throughput', 'org/tiny', '--prefill', '8', '--batch', '1', '--steps', '2', '--repeats', '1', '--no-probe'],
                     ['quantize', 'org/tiny', 'out'], ['serve', 'org/tiny', '--check-config'], ['pull', 'org/tiny', '--offline']):
            p = subprocess.run([QUIRE, *args], cwd=home.dir, input=line, capture_output=True, text=True, env=environment(home.env), check=False)
            assert p.returncode == 0 and 'Sanitizer' not in p.stderr, (args, p.stderr)
        assert len(hub.requests) == n, 'a model that is in the cache is not asked for'
        os.makedirs(f'{home.dir}/org/tiny')
        rc, _, err = home.run('plan', 'org/tiny')
        assert rc == 4 and 'org/tiny' in err and 'the directory is empty' in err, ('a local path wins', err)
        rc, _, err = home.run('plan', 'org/tinny')
        assert rc == 4 and "did you mean 'org/tiny'?" in err and 'quire pull' in err and len(hub.requests) == n, err


if __name__ == '__main__':
    main(globals(), 4)
