"""`quire doctor`: what is in the way of a server is named with its remedy, and what is not is not."""
import json
import os
import re
import resource
import socket
import subprocess
import tempfile

from lib import QUIRE, ROOT, environment, main, run

TINY = os.path.join(ROOT, 'models', 'quire-tiny')


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def findings(*args):
    rc, out, err = run('doctor', '--json', '--port', str(free_port()), *args)
    assert err == '', err
    return rc, {f['name']: f for f in json.loads(out)['findings']}


def test_a_machine_that_serves_the_bundled_model_has_nothing_in_the_way():
    rc, found = findings(TINY)
    assert rc == 0 and {'processor', 'threads', 'memory', 'open files', 'address', 'model', 'cache', 'TLS'} <= set(found), found
    assert not [f for f in found.values() if f['state'] == 'bad'] and found['model']['state'] == 'ok', found
    rc, out, _ = run('doctor', '--port', str(free_port()), TINY)
    assert rc == 0 and 'would be opened, and fits' in out and out.splitlines()[0].startswith(('ok', 'note')), out


def test_a_port_that_is_taken_is_named_with_its_holder_and_a_way_out():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        s.listen()
        rc, out, _ = run('doctor', '--port', str(s.getsockname()[1]))
    assert rc == 1 and 'BAD   address' in out and str(os.getpid()) in out and '--port' in out.split('BAD   address')[1], out


def test_a_model_that_is_missing_damaged_or_too_large_is_named():
    rc, found = findings('/nonexistent')
    assert rc == 1 and found['model']['state'] == 'bad' and '/nonexistent' in found['model']['text'] and 'quire check' in found['model']['remedy'], found
    rc, found = findings(TINY, '--kv-bytes', '900TB')
    assert rc == 1 and found['model']['state'] == 'bad' and 'quire plan' in found['model']['remedy'], found
    rc, found = findings('ORG/not-in-the-cache')
    assert rc == 1 and len(found) > 8 and 'quire pull' in found['model']['remedy'] and 'ORG/not-in-the-cache' in found['model']['text'], found
    rc, found = findings('--host', 'no.such.host.invalid')
    assert rc == 1 and 'no.such.host.invalid' in found['address']['text'], found


def test_names_that_a_model_brings_do_not_steer_a_terminal():
    with tempfile.TemporaryDirectory() as model:
        with open(os.path.join(model, 'config.json'), 'w') as f:
            json.dump({'architectures': ['Llama\x1b]0;x\x07\x9b31m'], 'model_type': 'llama'}, f)
        for command in ('doctor', 'check', 'plan'):
            rc, out, err = run(command, model, *(['--port', str(free_port())] if command == 'doctor' else []))
            assert rc != 0 and 'Llama^[]0;x^G' in out + err and not re.search('[\x00-\x08\x0b-\x1f\x7f-\x9f]', out + err), (command, out, err)


def test_limits_of_the_process_are_noted():
    def fewer():
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    r = subprocess.run([QUIRE, 'doctor', '--json', '--port', str(free_port())], capture_output=True, text=True, preexec_fn=fewer, env=environment(None), check=False)
    files = [f for f in json.loads(r.stdout)['findings'] if f['name'] == 'open files'][0]
    assert r.returncode == 0 and files['state'] == 'note' and '200' in files['text'] and 'ulimit -n' in files['remedy'], r.stdout
    closed = {**environment(None), 'XDG_CACHE_HOME': '/proc/none', 'HOME': '/proc/none'}
    r = subprocess.run([QUIRE, 'doctor', '--json', '--port', str(free_port())], capture_output=True, text=True, env=closed, check=False)
    assert [f for f in json.loads(r.stdout)['findings'] if f['name'] == 'cache'][0]['state'] == 'note', r.stdout


if __name__ == '__main__':
    main(globals())
