#!/usr/bin/env python3
"""check_routers.py - other people's routers from PyPI, as they are, before two servers of the bundled model: vllm-router, sglang-router, smg.

    python3 -m venv build/world/NAME && build/world/NAME/bin/pip install NAME     for each of them: two bring a program of the same name
    python3 tools/check_routers.py [TEST...]

`./dev check-world` runs it. The list of tests/e2e/fronts.py holds for each route that a router has; and it finds what it asks a worker (docs/api.md).
A router that is not installed is skipped by name.
"""
import json
import os
import random
import re
import struct
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
import fronts  # noqa: E402
from lib import Port, Skip, main  # noqa: E402

WORLD = os.path.join(ROOT, 'build', 'world')


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


def router(name, more=(), urls=lambda urls: ['--worker-urls', *urls]):
    """A command, as a function of what World knows. urls: the options that name workers."""
    def start(_, workers, port):
        return [*program(name), '--host', '127.0.0.1', '--port', str(port), '--prometheus-port', str(free_port()), *OPTIONS[''], *OPTIONS.get(name, []), *more,
                *urls([f'http://127.0.0.1:{p}' for p in workers])]
    return start


def free_port():
    """Of a program that shares a port with nobody."""
    held = Port()
    held.socket.close()
    return held.number


# ---- vllm-router's kv_aware ----

class Log:
    """What the router said since the start: the last event of each worker, by port, and the tokens that were credited for each request."""

    def __init__(self, w):
        self.w, self.at, self.told, self.credited = w, 0, {}, []

    def look(self):
        data = os.pread(self.w.log.fileno(), 1 << 26, self.at)
        whole = data[:data.rfind(b'\n') + 1]
        self.at += len(whole)
        for port, number, credited in re.findall(r'live sequence advanced source=\S*:([0-9]+) .*seq=([0-9]+)|KV prefix decision.*credited_prefix_tokens=([0-9]+)',
                                                 re.sub(r'\x1b\[[0-9;]*m', '', whole.decode('utf-8', 'replace'))):
            if credited:
                self.credited.append(int(credited))
            else:
                self.told[int(port)] = int(number) + 1

    def settled(self):
        self.look()
        return all(self.told.get(s.port, 0) == self.w.counted('quire_kv_events_batches_total', [s]) for s in self.w.workers)


def kv_aware():
    """Two workers that tell of their blocks. Their caches hold a few prompts."""
    ports, folder = [free_port(), free_port()], tempfile.TemporaryDirectory()
    make_adapter(folder.name)
    each = lambda i: ['--kv-tokens', '2048', '--max-len', '512', '--lora', f'story={folder.name}', '--kv-events', f'tcp://127.0.0.1:{ports[i]}', '--kv-events-topic', '']
    world = fronts.World(router('vllm-router', ['--policy', 'kv_aware', '--log-level', 'debug', '--kv-event-model', fronts.MODEL], lambda urls: [
        '--worker-urls', *urls, *(word for url, port in zip(urls, ports) for word in ('--kv-event-source', f'{url}=tcp://127.0.0.1:{port}'))]), each=each)
    world.folder_of_adapter = folder
    return world


def make_adapter(folder):
    """One of rank 2 for the first layer's queries, of small numbers."""
    tensors, rng, data = {}, random.Random(7), b''
    for name, shape in (('A', [2, 256]), ('B', [256, 2])):
        numbers = struct.pack('<512f', *(rng.uniform(-0.05, 0.05) for _ in range(512)))
        tensors[f'base_model.model.model.layers.0.self_attn.q_proj.lora_{name}.weight'] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + len(numbers)]}
        data += numbers
    head = json.dumps(tensors).encode()
    head += b' ' * (-len(head) % 8)
    with open(os.path.join(folder, 'adapter_model.safetensors'), 'wb') as f:
        f.write(struct.pack('<Q', len(head)) + head + data)
    with open(os.path.join(folder, 'adapter_config.json'), 'w', encoding='utf-8') as f:
        json.dump({'peft_type': 'LORA', 'r': 2, 'lora_alpha': 2, 'target_modules': ['q_proj']}, f)


def prompts(rng, n):
    """Bodies: beginnings of a few texts with an end of their own; a tenth with a salt, and more for the adapter, whose blocks are no other prompt's."""
    words = 'fox wood owl river stone lamp bread small girl boy tree house dog cat sun moon'.split()
    texts = [[rng.choice(words) for _ in range(120)] for _ in range(12)]
    for number in range(n):
        text = ' '.join(rng.choice(texts)[:rng.randrange(10, 121)]) + (f' {number}' if rng.random() < 0.5 else '')
        body, kind = {'messages': [{'role': 'user', 'content': text}], 'max_tokens': 2, 'temperature': 0}, rng.random()
        yield {**body, **({'cache_salt': f'salt{number % 3}'} if kind < 0.1 else {'model': 'story'} if kind < 0.25 else {})}


def credit_is_what_is_cached(w, n=int(os.environ.get('QUIRE_PROMPTS', '1000'))):
    seed = random.randrange(1 << 30)
    log, wrong, hits = Log(w), [], 0
    for body in prompts(random.Random(seed), n):
        time.sleep(0.015)  # what the last answer left in the caches is told
        fronts.wait_for(log.settled, 'all events at the router', 5)
        log.credited.clear()
        used = json.loads(fronts.ask(w.port, '/v1/chat/completions', body).body)['usage']
        cached = used['prompt_tokens_details']['cached_tokens']
        fronts.wait_for(lambda: log.look() or log.credited, 'a line of the router')
        hits += cached > 0
        # vllm-router credits nothing to a prompt with a salt, and looks one for an adapter up as if it were for the model.
        if 'model' not in body and log.credited != [0 if 'cache_salt' in body else cached]:
            wrong.append((log.credited[:], cached, used['prompt_tokens'], {k: v for k, v in body.items() if k != 'messages'}))
    evicted = w.counted('quire_kv_evicted_blocks_total')
    print(f'     seed {seed}: {n} prompts, {hits} with cached tokens, {int(evicted)} blocks evicted')
    assert not wrong, (len(wrong), wrong[:5])
    assert evicted > n / 10 and hits > n / 10


# ---- prefill and decode apart ----

def pair(name):
    """The first worker computes prompts, the second answers and has the first as its peer."""
    port = free_port()
    prefill = {'vllm-router': ['--vllm-pd-disaggregation'], '': ['--pd-disaggregation']}
    each = lambda i: ['--role', 'decode', '--peer', f'127.0.0.1:{port}'] if i else ['--role', 'prefill', '--peer-listen', f'127.0.0.1:{port}']
    return fronts.World(router(name, prefill.get(name, prefill['']), lambda urls: [
        '--prefill', urls[0], *([] if name == 'vllm-router' else [str(port)]), '--decode', urls[1]]), each=each)


def choices(reply):
    assert reply.status == 200, reply.raw
    return json.loads(reply.body)['choices']


def prompts_computed_apart_have_the_answers_of_one_process(w, n=40):
    """Texts and log-probabilities; and the blocks came from the peer."""
    with fronts.Server(*fronts.WORKER, model=fronts.TINY) as alone:
        for body in prompts(random.Random(11), n):
            body = {**body, 'max_tokens': 16, 'logprobs': True, 'top_logprobs': 2}
            if 'model' not in body:
                assert choices(fronts.ask(w.port, '/v1/chat/completions', body)) == choices(fronts.ask(alone.port, '/v1/chat/completions', body)), body
    came = w.counted('vllm:prompt_tokens_cached_by_source_total{model_name="%s",engine="0",source="p2p"}' % fronts.MODEL, w.workers[1:])
    computed = w.counted('vllm:prompt_tokens_by_source_total{model_name="%s",engine="0",source="local_compute"}' % fronts.MODEL, w.workers[1:])
    print(f'     {n} prompts: {int(came)} tokens came from the peer, {int(computed)} were computed beside the answers')
    assert came > computed, w.front_log()


if __name__ == '__main__':
    tests = {}
    for name, asks in ASKS.items():
        tests.update(fronts.tests_of(fronts.World(router(name), asks), name, WITHOUT.get(name, ())))
    knows = kv_aware()
    tests['test_vllm-router_credits_the_tokens_that_are_cached'] = lambda: credit_is_what_is_cached(knows.begun())
    for name in ASKS:
        tests[f'test_{name}_with_prompts_computed_apart_has_the_answers_of_one_process'] = lambda w=pair(name): (
            prompts_computed_apart_have_the_answers_of_one_process(w.begun()))
    main(tests)
