#!/usr/bin/env python3
"""check_routers.py - other people's routers from PyPI, as they are, before two servers of the bundled model: vllm-router, sglang-router, smg.

    python3 -m venv build/world/NAME && build/world/NAME/bin/pip install NAME     for each of them: two bring a program of the same name
    python3 tools/check_routers.py [TEST...]

`./dev check-world` runs it. The list of tests/e2e/fronts.py holds for each route that a router has; and it finds what it asks a worker (docs/api.md).
A router that is not installed is skipped by name.
"""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
from fronts import World, tests_of, wait_for  # noqa: E402
from lib import Port, Skip, main  # noqa: E402

WORLD = os.environ.get('QUIRE_WORLD') or os.path.join(ROOT, 'build', 'world')


def program(name):
    path = os.path.join(WORLD, name, 'bin', name)
    if not os.path.exists(path):
        raise Skip(f'no {path}')
    return [path] if name == 'vllm-router' else [path, 'launch']


def router(name, *options):
    """A command, as a function of what World knows."""
    def start(_, workers, port):
        held = Port()
        metrics = held.number
        held.socket.close()
        return [*program(name), '--host', '127.0.0.1', '--port', str(port), '--worker-urls', *(f'http://127.0.0.1:{p}' for p in workers), 
                '--prometheus-port', str(metrics), '--health-check-interval-secs', '1', '--health-check-endpoint', '/readyz', '--health-success-threshold', '1',
                '--cb-failure-threshold', '1', '--cb-timeout-duration-secs', '1', *options]
    return start


ROUTERS = {
    'vllm-router': (World(router('vllm-router', '--policy', 'cache_aware')), {'/health'}),
    'sglang-router': (World(router('sglang-router', '--policy', 'cache_aware')), {'/server_info', '/model_info'}),
    'smg': (World(router('smg', '--policy', 'cache_aware', '--load-monitor-interval', '1')), {'/loads', '/server_info', '/version'}),
}


def asked(w):
    """(path without its query, status) of every request that a worker has had."""
    for i in range(2):
        with open(w.access_log(i), encoding='utf-8') as f:
            for line in f:
                entry = json.loads(line)
                yield (entry['path'] or '').split('?')[0], entry['status']


def finds_what_it_asks_a_worker(w, paths):
    wait_for(lambda: paths <= {path for path, status in asked(w) if status == 200}, f'requests for {sorted(paths)}', 3)
    assert not [path for path, status in asked(w) if status in (401, 403, 404, 405)], sorted(set(asked(w)))


if __name__ == '__main__':
    tests = {}
    for name, (world, paths) in ROUTERS.items():
        tests.update(tests_of(world, name))
        tests[f'test_{name}_finds_what_it_asks_a_worker'] = lambda w=world, p=paths: finds_what_it_asks_a_worker(w.begun(), p)
    main(tests)
