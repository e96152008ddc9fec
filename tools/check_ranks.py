#!/usr/bin/env python3
"""check_ranks.py - a Slurm of its own on this machine starts ranks by srun with PMIx, PMI2 and nothing: they say what the processes of one machine say.
configs/slurm/serve.sbatch serves, and ends when it is told to. Two network namespaces are two machines to ranks started by hand. Run by tools/check_world.sh; needs slurmctld, slurmd, munged.
"""
import contextlib
import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
from lib import QUIRE, Port, environment, gone, run  # noqa: E402

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
GENERATE = ['generate', '--model', TINY, '--tensor-parallel', '2', '--threads', '1', '--prompt', 'Once there was a boy', '--max-tokens', '40', '--json']
CONFIG = """ClusterName=quire
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
SwitchType=switch/none
KillOnBadExit=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


def until(what, found, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if found():
                return
        time.sleep(0.1)
    raise AssertionError(f'not within {seconds} s: {what}')


class Slurm:
    """munged, slurmctld and slurmd as children of this process, with all of their files in a folder that goes away."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix='quire-slurm-')
        self.dir = self.folder.name
        for name in ('state', 'spool'):
            os.mkdir(os.path.join(self.dir, name))
        ports = [Port(), Port()]
        for p in ports:
            p.socket.close()
        with open(self.path('slurm.conf'), 'w', encoding='ascii') as f:
            f.write(CONFIG.format(host=socket.gethostname(), controller=ports[0].number, node=ports[1].number, dir=self.dir, user=getpass.getuser(), cpus=max(2, os.cpu_count())))
        with open(self.path('munge.key'), 'wb', opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
            f.write(os.urandom(1024))
        self.env = {**environment({}), 'SLURM_CONF': self.path('slurm.conf')}
        self.log = open(self.path('log'), 'w+b')
        self.daemons = []
        self.start('munged', '--foreground', '--force', *(f'--{what}={self.path(name)}' for what, name in (
            ('socket', 'munge.socket'), ('key-file', 'munge.key'), ('log-file', 'munged.log'), ('pid-file', 'munged.pid'), ('seed-file', 'munged.seed'))))
        until('munged listens', lambda: os.path.exists(self.path('munge.socket')))
        self.start('slurmctld', '-D')
        self.start('slurmd', '-D')
        until('the node is idle', lambda: ' idle ' in self.call('sinfo', '-h').stdout)
        return self

    def __exit__(self, *exc):
        self.call('scancel', '--partition=all')
        for d in reversed(self.daemons):
            d.terminate()
            try:
                d.wait(20)
            except subprocess.TimeoutExpired:
                d.kill()
                d.wait()
        if exc[0]:
            self.log.seek(0)
            print(self.log.read().decode('utf-8', 'replace')[-3000:], file=sys.stderr)
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self, *command):
        self.daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log))

    def call(self, *command, **env):
        return subprocess.run(command, capture_output=True, text=True, env={**self.env, **env}, timeout=120, check=False)


def check_ids(slurm):
    """PMIx: by MPI, where libquire_mpi.so is beside the program. Else, and when an address is named, by TCP."""
    rc, want, err = run(*GENERATE)
    assert rc == 0, err
    mpi = os.path.exists(os.path.join(os.path.dirname(QUIRE), 'libquire_mpi.so'))
    for how, flags, tcp in (('pmix', [], not mpi), ('pmix', ['--ranks-at', '127.0.0.1'], True), ('pmi2', [], True), ('none', [], True)):
        p = slurm.call('srun', '-n', '2', f'--mpi={how}', QUIRE, *GENERATE, *flags)
        assert p.returncode == 0 and json.loads(p.stdout) == json.loads(want), (how, p)
        assert ('waiting for the others' in p.stderr) == tcp, (how, p.stderr)
        print(f'ok   srun --mpi={how} {" ".join(flags)}: the ids of two processes of one machine, by {"TCP" if tcp else "MPI"}')


def check_sbatch(slurm):
    held = Port()
    p = slurm.call('sbatch', '--parsable', '--nodes=1', '--ntasks-per-node=2', '--cpus-per-task=1', f'--chdir={slurm.dir}', f'--output={slurm.path("out")}',
                   os.path.join(ROOT, 'configs', 'slurm', 'serve.sbatch'), MODEL=TINY, QUIRE=QUIRE, PORT=str(held.number))
    job = p.stdout.strip()
    assert job.isdigit(), p
    url = ['curl', '-fsS', f'http://127.0.0.1:{held.number}/readyz']
    try:
        until('the job serves', lambda: subprocess.run(url, capture_output=True, check=False).returncode == 0)
        slurm.call('scancel', '--batch', '--signal=USR1', job)
        until('the job ends', lambda: slurm.call('squeue', '-h', '-j', job).stdout == '')
    finally:
        with open(slurm.path('out'), encoding='utf-8') as f:
            text = f.read()
    state = slurm.call('scontrol', 'show', 'job', job).stdout
    assert 'ranks   2 processes (tcp)' in text and 'ExitCode=0:0' in state, (text, state)
    assert not [name for name in os.listdir(slurm.dir) if name.startswith('quire-ranks')], 'the secret is left'
    print('ok   serve.sbatch serves, and ends in good order when it is told to')


def check_death(slurm):
    """Slurm leaves the other rank alone here (KillOnBadExit=0): it ends by itself."""
    held = Port()
    step = subprocess.Popen(['srun', '-n', '2', '--mpi=none', QUIRE, 'serve', '--model', TINY, '--tensor-parallel', '2', '--threads', '1', '--port', str(held.number)],
                            env=slurm.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def ranks():
        found = {}
        for pid in filter(str.isdigit, os.listdir('/proc')):
            with contextlib.suppress(OSError), open(f'/proc/{pid}/environ', 'rb') as f:
                text = f.read().decode('utf-8', 'replace')
                mine = os.readlink(f'/proc/{pid}/exe') == os.path.realpath(QUIRE) and f'SLURM_CONF={slurm.path("slurm.conf")}' in text
                if mine and (m := re.search(r'SLURM_PROCID=(\d)', text)):
                    found[int(m[1])] = int(pid)
        return found

    until('the step serves', lambda: subprocess.run(['curl', '-fsS', f'http://127.0.0.1:{held.number}/readyz'], capture_output=True, check=False).returncode == 0)
    pids = ranks()
    assert sorted(pids) == [0, 1], pids
    began = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    until('rank 0 ends', lambda: gone(pids[0]), 10)
    took = time.monotonic() - began
    said = step.communicate(timeout=60)[1]
    assert step.returncode != 0 and 'rank 1 (127.0.0.1:' in said and ') died' in said, said
    print(f'ok   a rank that is killed ends the step by itself, after {took:.1f} s')


@contextlib.contextmanager
def two_machines():
    names = [f'quire-{os.getpid()}-{i}' for i in range(2)]

    def ip(*args):
        subprocess.run(['ip', *args], check=True)

    try:
        for name in names:
            ip('netns', 'add', name)
        ip('link', 'add', 'eth0', 'netns', names[0], 'type', 'veth', 'peer', 'name', 'eth0', 'netns', names[1])
        for i, name in enumerate(names):
            ip('-n', name, 'addr', 'add', f'10.77.0.{i + 1}/24', 'dev', 'eth0')
            ip('-n', name, 'link', 'set', 'eth0', 'up')
        yield names
    finally:
        for name in names:
            subprocess.run(['ip', 'netns', 'del', name], check=False)


def check_network():
    want = run(*GENERATE)[1]
    with two_machines() as names, tempfile.NamedTemporaryFile('w') as secret:
        secret.write('sesame\n')
        secret.flush()
        meet = ['--ranks-at', '10.77.0.1', '--ranks-secret-file', secret.name, '--rank']
        ranks = [subprocess.Popen(['ip', 'netns', 'exec', name, QUIRE, *GENERATE, *meet, str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=environment({})) for i, name in enumerate(names)]
        ends = [p.communicate(timeout=60) for p in ranks]
    assert all(p.returncode == 0 for p in ranks) and json.loads(ends[0][0]) == json.loads(want) and not ends[1][0], ends
    print('ok   two namespaces: the ids of two processes of one machine')


if __name__ == '__main__':
    check_network()
    with Slurm() as cluster:
        for check in (check_ids, check_sbatch, check_death):
            check(cluster)
