#!/usr/bin/env python3
"""check_routers.py - other people's routers from PyPI, as they are, before two servers of the bundled model: vllm-router, sglang-router, smg.

    python3 -m venv build/world/NAME && build/world/NAME/bin/pip install NAME     for each of them: two bring a program of the same name
    python3 tools/check_routers.py [TEST...]

`./dev check-world` runs it. The list of tests/e2e/fronts.py holds for each route that a router has; and it finds what it asks a worker (docs/api.md).
A router that is not installed is skipped by name.
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
import fronts  # noqa: E402
from lib import Port, Skip, main  # noqa: E402

WORLD = os.environ.get('QUIRE_WORLD') or os.path.join(ROOT, 'build', 'world')


def program(name):
    path = os.path.join(WORLD, name, 'bin', name)
    if not os.path.exists(path):
        raise Skip(f'no {path}')
    return [path] if name == 'vllm-router' else [path, 'launch']


# Whether smg keeps prompts that begin alike together depends on what each worker's tree of prompts has held so far.
ASKS = {'vllm-router': ['/readyz', '/v1/chat/completions/render'], 'sglang-router': ['/readyz', '/server_info', '/model_info'],
        'smg': ['/readyz', '/loads', '/server_info', '/version']}
WITHOUT = {'smg': [fronts.prompts_that_begin_alike_go_where_they_are_cached]}
OPTIONS = {'': ['--policy', 'cache_aware', '--health-check-interval-secs', '1', '--health-check-endpoint', '/readyz', '--health-success-threshold', '1',
                '--cb-failure-threshold', '3', '--cb-timeout-duration-secs', '1'],
           'smg': ['--load-monitor-interval', '1']}


def router(name):
    """A command, as a function of what World knows."""
    def start(_, workers, port):
        metrics = Port()
        metrics.socket.close()
        return [*program(name), '--host', '127.0.0.1', '--port', str(port), '--worker-urls', *(f'http://127.0.0.1:{p}' for p in workers),
                '--prometheus-port', str(metrics.number), *OPTIONS[''], *OPTIONS.get(name, [])]
    return start


if __name__ == '__main__':
    tests = {}
    for name, asks in ASKS.items():
        tests.update(fronts.tests_of(fronts.World(router(name), asks), name, WITHOUT.get(name, ())))
    main(tests)
