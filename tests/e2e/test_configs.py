"""Files of configs/ for other programs: every option, route and metric that they name is one of this program's."""
import glob
import json
import os
import re
import subprocess

from lib import ROOT, Server, Skip, main, run

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
CONFIGS = os.path.join(ROOT, 'configs')
METRIC = r'\b((?:vllm:|quire_)[a-z0-9_]+)'


def read(*path):
    with open(os.path.join(CONFIGS, *path), encoding='utf-8') as f:
        return f.read()


def yaml():
    try:
        import yaml as module
    except ImportError as e:
        raise Skip('no PyYAML here (apt-get install python3-yaml)') from e
    return module


def dashboard():
    board = json.loads(read('grafana.json'))
    return [(p['title'], t['expr']) for p in board['panels'] for t in p['targets']]


def alerts():
    """Without a YAML reader: one expression a line."""
    return re.findall(r'^ *- alert: (\w+)\n +expr: (.+)$', read('prometheus-alerts.yaml'), re.M)


def test_every_metric_of_dashboard_alerts_and_scaler_is_one_that_a_server_has():
    with Server('--kv-tokens', '2048', '--max-len', '512', '--api-key', 'user', '--admin-key', 'admin', model=TINY) as s:
        assert s.get('/metrics')[0] == 401
        text = s.get('/metrics', {'Authorization': 'Bearer admin'})[1]
    has = set()
    for name, kind in re.findall(r'^# TYPE (\S+) (\S+)$', text, re.M):
        has |= {name} if kind != 'histogram' else {name + end for end in ('_bucket', '_sum', '_count')}
    asked = [(where, name) for where, expr in dashboard() + alerts() for name in re.findall(METRIC, expr)]
    asked += [('hpa.yaml', name) for name in re.findall(r'name: ' + METRIC[2:], read('kubernetes', 'hpa.yaml'))]
    assert len({where for where, _ in asked}) >= 25, asked
    assert not [(where, name) for where, name in asked if name not in has]


def test_alerts_say_what_is_so_and_what_to_do():
    text = read('prometheus-alerts.yaml')
    assert len(alerts()) == text.count('- alert:') == len(re.findall(r'^ +summary: ".+"$', text, re.M)) == len(re.findall(r'^ +action: \S.+$', text, re.M)) >= 9
    known = set(re.findall(r'--([a-z-]+)', run('serve', '--help')[1].replace('[no-]', '')))
    said = set(re.findall(r'--([a-z][a-z-]+)', text + read('grafana.json')))
    assert said and said <= known, said - known


def test_the_pods_arguments_are_options_and_their_end_leaves_time_for_the_drain():
    text = read('kubernetes', 'deployment.yaml')
    args = re.findall(r'^ +- --([a-z-]+)(?:=(\S+))?$', text, re.M)
    known = options_of('serve')
    assert len(args) >= 6 and {name for name, _ in args} <= known, args
    drain = int(dict(args)['drain-timeout'].removesuffix('s'))
    grace = int(re.search(r'terminationGracePeriodSeconds: (\d+)', text).group(1))
    pause = int(re.search(r'command: \[sleep, "(\d+)"\]', text).group(1))
    assert grace > drain + pause + 2, (grace, drain, pause)
    with Server('--kv-tokens', '2048', '--max-len', '512', model=TINY) as s:
        for path in re.findall(r'httpGet: {path: (\S+),', text):
            assert s.get(path)[0] == 200, path
    assert 'enableServiceLinks: false' in text and re.search(r'containerPort: 8000', text) and dict(args)['port'] == '8000'
    with open(os.path.join(ROOT, 'Containerfile'), encoding='utf-8') as f:
        uid = re.search(r'--uid (\d+)', f.read()).group(1)
    assert f'runAsUser: {uid}\n' in text


def test_every_yaml_file_parses_and_manifests_are_what_they_are_called():
    load = yaml().safe_load_all
    kinds = {}
    for path in sorted(glob.glob(os.path.join(CONFIGS, '**', '*.yaml'), recursive=True)):
        with open(path, encoding='utf-8') as f:
            documents = list(load(f))
        assert documents and all(documents), path
        kinds[os.path.basename(path)] = [d.get('kind') for d in documents]
    assert kinds['deployment.yaml'] == ['Deployment'] and kinds['service.yaml'] == ['Service'] and kinds['hpa.yaml'] == ['HorizontalPodAutoscaler']
    assert kinds['leaderworkerset.yaml'] == ['LeaderWorkerSet'] and kinds['gateway.yaml'] == ['InferencePool', 'Gateway', 'HTTPRoute']


def options_of(command):
    return set(re.findall(r'^ .*?--([a-z-]+)', run(command, '--help')[1].replace('[no-]', ''), re.M))


def test_a_group_of_pods_is_as_many_ranks_as_its_command_says_and_the_gateway_finds_its_leader():
    load = yaml().safe_load_all
    group, = load(read('kubernetes', 'leaderworkerset.yaml'))
    pool, gateway, route = load(read('kubernetes', 'gateway.yaml'))
    pods = group['spec']['leaderWorkerTemplate']
    leader, worker = pods['leaderTemplate'], pods['workerTemplate']
    first, other = leader['spec']['containers'][0], worker['spec']['containers'][0]
    args = dict(a[2:].split('=', 1) for a in first['args'][1:])
    assert first['args'][0] == 'serve' and first['args'] == other['args'] and set(args) <= options_of('serve'), args
    assert int(args['tensor-parallel']) == pods['size'] and pods['restartPolicy'] == 'RecreateGroupOnPodRestart'
    mounted = {m['name']: m['mountPath'] for m in first['volumeMounts']}
    volumes = {v['name'] for v in leader['spec']['volumes']}
    assert set(mounted) == volumes and leader['spec']['volumes'] == worker['spec']['volumes']
    assert all(any(args[o].startswith(path + '/') for path in mounted.values()) for o in ('model', 'ranks-secret-file', 'api-key-file', 'admin-key-file'))
    ports = {p['name']: p['containerPort'] for p in first['ports']}
    assert ports['http'] == int(args['port']) and f'Port {ports["ranks"]} unless named' in ' '.join(run('serve', '--help')[1].split())
    wait, probe = args['ranks-wait'], first['startupProbe']
    assert wait.endswith('m') and 60 * int(wait[:-1]) < probe['periodSeconds'] * probe['failureThreshold']
    assert int(args['drain-timeout'].removesuffix('s')) + int(first['lifecycle']['preStop']['exec']['command'][1]) + 2 < leader['spec']['terminationGracePeriodSeconds']
    assert 'readinessProbe' not in other
    labels, wanted = leader['metadata']['labels'], pool['spec']['selector']['matchLabels']
    assert labels['llm-d.ai/engine-type'] == 'vllm' and wanted.items() <= labels.items() and not wanted.items() <= worker['metadata']['labels'].items()
    assert pool['spec']['targetPorts'] == [{'number': ports['http']}]
    backend, parent = route['spec']['rules'][0]['backendRefs'][0], route['spec']['parentRefs'][0]
    assert (backend['kind'], backend['name'], parent['name']) == (pool['kind'], pool['metadata']['name'], gateway['metadata']['name'])
    assert backend['group'] == pool['apiVersion'].split('/')[0]


def test_the_batch_script_is_one_of_the_shell_and_its_flags_are_options():
    path = os.path.join(CONFIGS, 'slurm', 'serve.sbatch')
    text = read('slurm', 'serve.sbatch')
    assert subprocess.run(['sh', '-n', path], check=False).returncode == 0
    command = re.search(r'" serve (.*\\\n.*)&$', text, re.M).group(1)
    said = set(re.findall(r'--([a-z-]+)', command))
    assert len(said) == 6 and said <= options_of('serve'), said
    directives = re.findall(r'^#SBATCH (\S+)$', text, re.M)
    assert len(directives) == text.count('#SBATCH') == 6 and all(d.startswith('--') for d in directives), directives


def test_the_unit_waits_for_its_model_and_names_options_there_are():
    unit = read('quire.service')
    command = re.search(r'^ExecStart=/usr/local/bin/quire serve (.*)$', unit, re.M).group(1)
    assert f"\nConditionPathExists={re.search(r'--model (.+?) ', command).group(1)}\n" in unit
    rc, _, err = run('serve', *command.replace('/etc/quire', CONFIGS).replace('/var/lib/quire/model', TINY).split(), '--check-config')
    assert rc == 0, err


if __name__ == '__main__':
    main(globals())
