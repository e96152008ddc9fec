"""Pages that `quire reference` makes from the tables of options: every option is in all of them, and other programs read them."""
import json
import os
import re
import shutil
import subprocess
import tempfile

from lib import ROOT, Skip, main, run

DIR = tempfile.TemporaryDirectory(prefix='quire-reference-')


def pages():
    out = os.path.join(DIR.name, 'r')
    if not os.path.exists(out):
        rc, text, err = run('reference', out)
        assert rc == 0 and 'files in' in text, (rc, text, err)
    return out


def read(name):
    with open(os.path.join(pages(), name), encoding='utf-8') as f:
        return f.read()


def commands():
    """Every command that has options, by its own help."""
    listed = re.findall(r'^  quire ([a-z]+) ', run('--help')[1], re.M)
    assert len(listed) > 10
    for name in listed:
        rc, text, _ = run(name, '--help')
        assert rc == 0
        subs = re.findall(rf'^  quire ({name} [a-z-]+)', text, re.M) if '\nCommands:\n' in text else []
        yield from subs or [name]


def flags(command):
    text = run(*command.split(), '--help')[1].replace('[no-]', '')
    return set(re.findall(r'^(?:  -[a-zA-Z], |      )--([a-z0-9.-]+)', text, re.M))


def test_every_flag_of_every_command_is_in_its_manual_page_the_completions_and_the_reference():
    options, bash, zsh, fish = read('options.md'), read('completions/quire'), read('completions/_quire'), read('completions/quire.fish')
    n = 0
    for command in commands():
        page = read('man1/quire-%s.1' % command.replace(' ', '-')).replace('\\-', '-').replace('[no-]', '')
        assert f'\n## quire {command}\n' in options, command
        section = options.split(f'\n## quire {command}\n')[1].split('\n## ')[0]
        words = re.search(rf"'{command}'\) flags='([^']*)'", bash).group(1).split()
        in_zsh = zsh.split(f"        '{command}') _arguments")[1].split(';;')[0]
        for flag in flags(command):
            common = flag in ('config', 'print-config', 'check-config', 'help')
            assert f'--{flag}' in page and f'--{flag}' in words and f'--{flag}[' in in_zsh, (command, flag)
            assert common or f'`--{flag}' in section, (command, flag)
            assert re.search(rf'{command.split()[-1]}.*-l {re.escape(flag)} ', fish), (command, flag)
            n += 1
    assert n > 300, n


def test_manual_pages_are_roff_without_a_warning():
    if not shutil.which('groff'):
        raise Skip('no groff here')
    for name in sorted(os.listdir(os.path.join(pages(), 'man1'))):
        r = subprocess.run(['groff', '-man', '-Tutf8', '-ww', '-rLL=200n', os.path.join(pages(), 'man1', name)], capture_output=True, text=True, check=False)
        worst = [line for line in r.stderr.splitlines() if "can't break line" not in line and 'cannot break line' not in line and 'cannot adjust' not in line]
        assert r.returncode == 0 and not worst, (name, worst)
        assert 'EXIT STATUS' in re.sub(r'\x1b\[[0-9;]*m|.\x08', '', r.stdout), name


def test_bash_completes_commands_flags_and_choices():
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quire; printf "%s\\n" "${COMPREPLY[@]}"')

    def complete(*words):
        r = subprocess.run(['bash', '-c', script, 'x', os.path.join(pages(), 'completions/quire'), *words], capture_output=True, text=True, check=False)
        assert r.returncode == 0 and not [line for line in r.stderr.splitlines() if 'compopt' not in line], r.stderr
        return r.stdout.split()

    assert complete('quire', 'serv') == ['serve']
    assert complete('quire', 'bench', 'lo') == ['load']
    assert complete('quire', 'serve', '--quantize', 'fp') == ['fp8']
    assert complete('quire', 'serve', '--port', '') == []
    assert '--max-len' in complete('quire', 'serve', '--max-')
    assert complete('quire', 'bench', 'load', '--temperat') == ['--temperature']


def test_the_schemas_know_every_setting_and_what_is_none():
    server, train = json.loads(read('server.schema.json')), json.loads(read('train.schema.json'))
    assert flags('serve') - {'config', 'print-config', 'check-config', 'help'} == set(server['properties'])
    assert server['additionalProperties'] is False and server['properties']['port']['maximum'] == 65535
    assert server['properties']['kv-cache-dtype']['enum'] == ['auto', 'f32', 'bf16', 'int8', 'fp8']
    with open(os.path.join(ROOT, 'configs', 'server.yaml'), encoding='utf-8') as f:
        used = set(re.findall(r'^#? ?([a-z][a-z-]+):', f.read(), re.M))
    assert used and used <= set(server['properties']), used - set(server['properties'])
    assert 'lr' in train['properties']['optimizer']['properties'] and train['properties']['optimizer']['additionalProperties'] is False


def test_what_cannot_be_written_is_named():
    rc, _, err = run('reference', '/proc/nothing')
    assert rc == 4 and '/proc/nothing' in err, (rc, err)
    rc, _, err = run('reference')
    assert rc == 2 and 'quire reference DIR' in err, (rc, err)


if __name__ == '__main__':
    main(globals())
