#!/usr/bin/env python3
"""check_monitoring.py - a Prometheus of its own scrapes a server under load: every query of configs/grafana.json has an answer, the rules of
configs/prometheus-alerts.yaml are evaluated, and the end of the server is told. Run by tools/check_world.sh; needs prometheus and promtool.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
from lib import Port, Server  # noqa: E402

TINY = os.path.join(ROOT, 'models', 'quire-tiny')
RULES = os.path.join(ROOT, 'configs', 'prometheus-alerts.yaml')
VARIABLES = {'$__rate_interval': '10s', '$job': '.*', '$instance': '.*'}
CONFIG = """global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: quire
    authorization: {{credentials: admin}}
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""


class Prometheus:
    def __init__(self, folder, target):
        self.held = Port()
        self.url = f'http://127.0.0.1:{self.held.number}/api/v1'
        config = os.path.join(folder, 'prometheus.yml')
        with open(config, 'w', encoding='utf-8') as f:
            f.write(CONFIG.format(rules=RULES, port=target))
        subprocess.run(['promtool', 'check', 'config', config], check=True, stdout=subprocess.DEVNULL)
        self.held.socket.close()  # Go's listener does not share it
        self.log = open(os.path.join(folder, 'log'), 'w+b')
        self.process = subprocess.Popen(['prometheus', f'--config.file={config}', f'--storage.tsdb.path={folder}/data',
                                         f'--web.listen-address=127.0.0.1:{self.held.number}'], stdout=self.log, stderr=self.log)

    def get(self, path, **query):
        with urllib.request.urlopen(f'{self.url}{path}?{urllib.parse.urlencode(query)}', timeout=20) as r:
            return json.load(r)['data']

    def wait(self, what, found, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, open(self.log.name, encoding='utf-8').read()[-2000:]
            try:
                if found():
                    return
            except OSError:
                pass
            time.sleep(0.5)
        raise AssertionError(f'not within {seconds} s: {what}')

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def load(s, stop):
    """Short requests, some of them wrong, until told to end."""
    key = {'Authorization': 'Bearer user'}
    while not stop.is_set():
        s.post('/v1/completions', {'prompt': 'Once upon a time there was a girl named Lily who lived in a small house', 'max_tokens': 8}, key)
        s.post('/v1/completions', {'prompt': 7}, key)


def queries():
    with open(os.path.join(ROOT, 'configs', 'grafana.json'), encoding='utf-8') as f:
        for panel in json.load(f)['panels']:
            for target in panel['targets']:
                expr = target['expr']
                for name, value in VARIABLES.items():
                    expr = expr.replace(name, value)
                assert '$' not in expr, expr
                yield panel['title'], expr


def unanswered(p):
    """Queries without a sample, or with one that is no number."""
    answers = [(title, expr, p.get('/query', query=expr)['result']) for title, expr in queries()]
    return [(title, expr) for title, expr, result in answers if not result or any(r['value'][1] in ('NaN', '+Inf') for r in result)]


def check(p):
    p.wait('the first scrapes', lambda: p.get('/query', query='count_over_time(up{job="quire"}[1m]) > 5')['result'])
    end = time.monotonic() + 30
    while unanswered(p) and time.monotonic() < end:
        time.sleep(1)
    missing = unanswered(p)
    assert not missing, missing
    print(f'{len(list(queries()))} queries of the dashboard are answered')
    rules = [r for g in p.get('/rules')['groups'] for r in g['rules']]
    assert len(rules) >= 9 and all(r['health'] == 'ok' for r in rules), rules
    alerts = [a['labels']['alertname'] for a in p.get('/alerts')['alerts']]
    assert set(alerts) <= {'QuireServerErrors'}, alerts
    print(f'{len(rules)} rules are evaluated, none of them is about a server that is well')


def check_end(p, s):
    s.process.terminate()
    s.process.wait()
    p.wait('QuireDown', lambda: 'QuireDown' in [a['labels']['alertname'] for a in p.get('/alerts')['alerts']])
    print('the end of the server is told')


def main():
    print(re.search(r'version \S+', subprocess.run(['prometheus', '--version'], capture_output=True, text=True, check=True).stdout).group(0))
    subprocess.run(['promtool', 'check', 'rules', RULES], check=True)
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as folder, Server('--kv-tokens', '4096', '--max-len', '512', '--api-key', 'user', '--admin-key', 'admin', model=TINY) as s:
        p = Prometheus(folder, s.port)
        client = threading.Thread(target=load, args=(s, stop))
        client.start()
        try:
            p.wait('its start', lambda: p.get('/query', query='up')['result'])
            check(p)
            stop.set()
            client.join()
            check_end(p, s)
        finally:
            stop.set()
            p.end()


if __name__ == '__main__':
    main()
