#!/usr/bin/env python3
"""check_hub.py - huggingface_hub and quire over one cache, in both directions, against a hub on loopback (tests/e2e/hub.py). Run by tools/check_world.sh.

What quire pulled is found by huggingface_hub without a network, and the other way round; what one began the other ends; the command that quire says without a
network brings a directory that it serves; both count the same in the cache.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
from hub import Hub, Model  # noqa: E402

QUIRE = os.environ.get('QUIRE_BIN') or os.path.join(ROOT, 'build', 'quire')
TINY = os.path.join(ROOT, 'models', 'quire-tiny')
GGUF = {'a-Q4_K_M.gguf': b'GGUF' * 1000, 'a-Q8_0.gguf': b'8' * 5000}


def python(code, env):
    p = subprocess.run([sys.executable, '-c', code], env=env, capture_output=True, text=True, check=False)
    assert p.returncode == 0, p.stderr[-2000:]
    return p.stdout


def quire(*args, env, cwd):
    p = subprocess.run([QUIRE, *args], env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert p.returncode == 0, (args, p.stderr)
    return p.stdout


def kill_in_the_middle(process, hub, cache, sha):
    """Ends it once half of the file has come. (huggingface_hub keeps that in memory, and never goes on with a partial file.)"""
    assert hub.half_sent.wait(60)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any(b.endswith('.incomplete') for b in os.listdir(f'{cache}/blobs')) and not os.path.exists(f'{cache}/blobs/{sha}')
    hub.half_sent.clear()


def main():
    files = {name: open(f'{TINY}/{name}', 'rb').read() for name in os.listdir(TINY) if os.path.isfile(f'{TINY}/{name}')}
    tiny = Model({**files, 'pytorch_model.bin': b'p' * 2000})
    n_tests = 0
    with Hub({'org/tiny': tiny, 'org/gguf': Model(GGUF)}, page=3) as hub:
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(('HF_', 'QUIRE_'))}, 'HF_ENDPOINT': hub.endpoint, 'no_proxy': '*',
               'HF_HUB_DISABLE_XET': '1', 'HF_HUB_DISABLE_TELEMETRY': '1', 'QUIRE_THREADS': '1'}
        offline = {'HF_HUB_OFFLINE': '1', 'HF_ENDPOINT': 'http://127.0.0.1:9'}
        print('huggingface_hub', python('import huggingface_hub; print(huggingface_hub.__version__)', env).strip())

        def check(what, test):
            nonlocal n_tests
            with tempfile.TemporaryDirectory() as home:
                test(home, {**env, 'HF_HOME': home, 'HOME': home})
            n_tests += 1
            print(f'ok   {what}')

        def pulled(home, env):
            path = quire('pull', 'org/tiny', env=env, cwd=home).strip()
            found = python('from huggingface_hub import snapshot_download as s; print(s("org/tiny", local_files_only=True))', {**env, **offline}).strip()
            assert found == path, (found, path)
            for name in os.listdir(path):
                one = f'from huggingface_hub import hf_hub_download as d; print(d("org/tiny", {name!r}, local_files_only=True))'
                assert python(one, {**env, **offline}).strip() == f'{path}/{name}'
            gguf = quire('pull', 'org/gguf:Q8', env=env, cwd=home).strip()
            one = 'from huggingface_hub import hf_hub_download as d; print(d("org/gguf", "a-Q8_0.gguf", local_files_only=True))'
            assert python(one, {**env, **offline}).strip() == gguf
            sizes = json.loads(python('import json; from huggingface_hub import scan_cache_dir as s; c = s(); assert not c.warnings, c.warnings; '
                                      'print(json.dumps({r.repo_id: r.size_on_disk for r in c.repos}))', env))
            listed = {row['name'].split(':')[0]: row['bytes'] for row in map(json.loads, quire('list', '--json', env=env, cwd=home).split())}
            assert sizes == listed, (sizes, listed)
            n = len(hub.requests)
            python('from huggingface_hub import snapshot_download as s; s("org/tiny", allow_patterns=["*.json", "*.safetensors"])', env)
            assert not [r for r in hub.requests[n:] if r[1] == 'GET' and '/resolve/' in r[2]], 'fetched again'

        def fetched_by_the_other(home, env):
            path = python('from huggingface_hub import snapshot_download as s; print(s("org/tiny"))', env).strip().split('\n')[-1]
            n = len(hub.requests)
            assert 'model' in quire('check', 'org/tiny', env={**env, **offline}, cwd=home)
            assert len(hub.requests) == n
            assert quire('pull', 'org/tiny', env=env, cwd=home).strip() == path
            assert not [r for r in hub.requests[n:] if '/resolve/' in r[2]], 'fetched again'
            quire('rm', 'org/tiny', '--yes', env=env, cwd=home)
            assert '0' == python('from huggingface_hub import scan_cache_dir as s; print(len(s().repos))', env).strip()

        def begun(home, env, first, then):
            cache, name = f'{home}/hub/models--org--tiny', 'model.safetensors'
            hub.faults[name] = ['slow']
            process = subprocess.Popen(first, env=env, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            kill_in_the_middle(process, hub, cache, tiny.hash_of(name))
            n = len(hub.requests)
            subprocess.run(then, env=env, cwd=home, check=True, capture_output=True)
            ranges = [r[3].get('Range') for r in hub.requests[n:] if r[0] == 'files' and r[1] == 'GET' and name in r[2]]
            assert len(ranges) == 1, ranges
            assert open(f'{cache}/snapshots/{tiny.commit}/{name}', 'rb').read() == tiny.files[name]

        def said(home, env):
            p = subprocess.run([QUIRE, 'serve', 'org/tiny'], env={**env, 'HF_HUB_OFFLINE': '1'}, cwd=home, capture_output=True, text=True, check=False)
            command = re.search(r'hf download .*', p.stderr).group()
            subprocess.run(command, shell=True, env={**env, 'PATH': f'{os.path.dirname(sys.executable)}:{env["PATH"]}'}, cwd=home, check=True, capture_output=True)
            assert sorted(n for n in os.listdir(f'{home}/tiny') if n[0] != '.') == sorted(n for n in files if not n.endswith('.md')), os.listdir(f'{home}/tiny')
            quire('plan', './tiny', env=env, cwd=home)

        hf = [sys.executable, '-c', 'from huggingface_hub import snapshot_download as s; s("org/tiny")']
        check('what quire pulled huggingface_hub finds, and counts the same', pulled)
        check('what huggingface_hub fetched quire finds, and removes', fetched_by_the_other)
        check('what quire began huggingface_hub ends', lambda home, env: begun(home, env, [QUIRE, 'pull', 'org/tiny'], hf))
        check('what huggingface_hub began quire ends', lambda home, env: begun(home, env, hf, [QUIRE, 'pull', 'org/tiny']))
        check('the command that is said without a network brings what is served', said)
    print(f'{n_tests} passed, 0 failed')


if __name__ == '__main__':
    main()
