"""mixed.py - requests of every kind, made from a seed, and what of their answers has to be equal wherever they are computed.

    mixed.requests(60, seed=1)                    -> Request objects: chat, completions, n, log-probabilities, seeds, stops, streams, tools, schemas, salts,
                                                     embeddings, cancels; prompts share prefixes, so that most of a prompt has been computed before
    mixed.run(address, requests, at_once=4)       -> what came of each, in order
    mixed.same(ours, theirs)                      -> raises AssertionError, naming the request and the first difference

An answer is what its bytes say without what names the call: ids, times, and tokens that were found in the cache, or guessed. A stream is the answer that its chunks add up to.
Standard library only.
"""
import concurrent.futures
import http.client
import json
import random
import re
import socket
import time

WORDS = ('the a little cat dog house river went to said that and big red sun moon was very happy with his friend day tree saw found box old man woman'
         ' he she it they play run jump help in on under').split()
SCHEMA = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 12}, 'age': {'type': 'integer', 'minimum': 0, 'maximum': 99}},
          'required': ['name', 'age'], 'additionalProperties': False}
TOOLS = [{'type': 'function', 'function': {'name': 'find', 'description': 'Finds a thing.', 'parameters': {
    'type': 'object', 'properties': {'what': {'type': 'string', 'maxLength': 16}}, 'required': ['what'], 'additionalProperties': False}}}]
NAMES_THE_CALL = re.compile(r'"(?:id|created|request_id|tool_call_id)": ?(?:"[^"]*"|\d+)|"prompt_tokens_details": ?\{[^}]*\}|"(?:accepted|rejected)_prediction_tokens": ?\d+')


class Request:
    def __init__(self, number, kind, path, body, cancel_s=None):
        self.number, self.kind, self.path, self.body, self.cancel_s = number, kind, path, body, cancel_s

    def __repr__(self):
        return f'request {self.number} ({self.kind}) {self.path} {json.dumps(self.body)[:400]}'


def text(rng, n_words):
    return ' '.join(rng.choice(WORDS) for _ in range(n_words))


class Prompts:
    """Texts and ids of which many begin alike; the longest has about `most` tokens."""

    def __init__(self, rng, most, vocab, n_prefixes, with_ids):
        self.rng, self.most, self.vocab, self.with_ids = rng, most, vocab, with_ids
        self.prefixes = [text(rng, rng.randrange(4, max(5, most // 2))) for _ in range(n_prefixes)]
        self.ids = [self.some(rng.randrange(8, max(9, most * 3 // 4))) for _ in range(n_prefixes)]

    def some(self, n):
        return [self.rng.randrange(8, self.vocab) for _ in range(n)]

    def text(self):
        if self.rng.random() < 0.2:
            return text(self.rng, self.rng.randrange(1, max(2, self.most // 2)))
        return self.rng.choice(self.prefixes) + ' ' + text(self.rng, self.rng.randrange(1, max(2, self.most // 12)))

    def tokens(self):
        if not self.with_ids:
            return self.text()
        return self.rng.choice(self.ids) + self.some(self.rng.randrange(1, max(2, self.most // 8)))


def drawn(rng):
    """How tokens are drawn: the likeliest, or by a seed."""
    if rng.random() < 0.4:
        return {'temperature': 0}
    return {'temperature': round(rng.uniform(0.5, 1.3), 2), 'top_p': rng.choice([1, 0.9]), 'seed': rng.randrange(1 << 31)}


def as_chat(rng, p, **fields):
    messages = [{'role': 'system', 'content': rng.choice(p.prefixes)}] if rng.random() < 0.5 else []
    return '/v1/chat/completions', {'messages': [*messages, {'role': 'user', 'content': p.text()}], 'max_tokens': rng.randrange(1, 24), **drawn(rng), **fields}


def as_text(rng, p, **fields):
    return '/v1/completions', {'prompt': p.text() if rng.random() < 0.5 else p.tokens(), 'max_tokens': rng.randrange(1, 24), **drawn(rng), **fields}


def either(rng, p, chat, completions):
    return as_chat(rng, p, **chat) if rng.random() < 0.5 else as_text(rng, p, **completions)


# kind: how often, and what makes one
KINDS = {
    'chat': (6, as_chat),
    'text': (6, as_text),
    'ids': (3, lambda rng, p: as_text(rng, p, return_token_ids=True)),
    'choices': (3, lambda rng, p: either(rng, p, {'n': 3}, {'n': 2})),
    'logprobs': (4, lambda rng, p: either(rng, p, {'logprobs': True, 'top_logprobs': 3}, {'logprobs': 2})),
    'prompt_logprobs': (2, lambda rng, p: as_text(rng, p, prompt_logprobs=1)),
    'echo': (1, lambda rng, p: as_text(rng, p, echo=True, logprobs=0)),
    'several': (2, lambda rng, p: as_text(rng, p, prompt=[p.tokens(), p.tokens(), p.tokens()])),
    'stop': (3, lambda rng, p: either(rng, p, {'stop': [rng.choice(WORDS), '. ']}, {'stop': [rng.choice(WORDS), '. ']})),
    'tools': (2, lambda rng, p: as_chat(rng, p, tools=TOOLS, tool_choice='required', max_tokens=40)),
    'schema': (2, lambda rng, p: as_chat(rng, p, response_format={'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': SCHEMA}}, max_tokens=40)),
    'salt': (2, lambda rng, p: either(rng, p, {'cache_salt': rng.choice('ab')}, {'cache_salt': rng.choice('ab')})),
    'stream': (8, lambda rng, p: either(rng, p, {'stream': True, 'logprobs': True}, {'stream': True, 'logprobs': 1, 'return_token_ids': True})),
    'embedding': (3, lambda rng, p: ('/v1/embeddings', {'input': [p.text(), p.tokens()][rng.randrange(2)]})),
    'cancel': (3, lambda rng, p: either(rng, p, {'stream': True, 'max_tokens': 200}, {'stream': True, 'max_tokens': 200})),
}


def requests(n, seed, most=240, vocab=512, n_prefixes=8, without=(), with_ids=True):
    """n requests, the same for the same seed; of models with that many ids at least, and room for `most` tokens of a prompt and 200 more. Kinds that are to be
    left out; with_ids: prompts may be ids."""
    rng = random.Random(seed)
    p = Prompts(rng, most, vocab, n_prefixes, with_ids)
    kinds = {kind: row for kind, row in KINDS.items() if kind not in without}
    out = []
    for i in range(n):
        kind = rng.choices(list(kinds), [often for often, _ in kinds.values()])[0]
        path, body = kinds[kind][1](rng, p)
        out.append(Request(i, kind, path, body, rng.uniform(0, 0.05) if kind == 'cancel' else None))
    return out


# ---- what came of them ----

class Outcome:
    def __init__(self, status, answer, seconds, cached=0):
        self.status, self.answer, self.seconds, self.cached = status, answer, seconds, cached


def connect(address, timeout):
    """address: a port of loopback, (host, port), or the path of a Unix socket."""
    if not isinstance(address, str):
        host, port = address if isinstance(address, tuple) else ('127.0.0.1', address)
        return http.client.HTTPConnection(host, port, timeout=timeout)
    c = http.client.HTTPConnection('localhost', timeout=timeout)
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.settimeout(timeout)
    c.sock.connect(address)
    return c


def add(into, more):
    """What a chunk adds to an answer: texts and arrays grow, objects by their members, and anything else is what came last."""
    for key, value in more.items():
        have = into.get(key)
        if isinstance(value, str) and isinstance(have, str) and key not in ('role', 'finish_reason', 'object', 'model', 'system_fingerprint', 'type'):
            into[key] = have + value
        elif isinstance(value, list) and isinstance(have, list):
            if key == 'tool_calls':
                for call in value:
                    while len(have) <= call['index']:
                        have.append({})
                    add(have[call['index']], {k: v for k, v in call.items() if k != 'index'})
            else:
                have.extend(value)
        elif isinstance(value, dict) and isinstance(have, dict):
            add(have, value)
        elif value is not None or have is None:
            into[key] = value if key != 'tool_calls' else []
            if key == 'tool_calls':
                add(into, {key: value})


def joined(lines):
    """The answer that the chunks of a stream add up to, as text, and whether it is whole."""
    choices, usage, whole = {}, None, False
    for line in lines:
        if not line.startswith(b'data: '):
            continue
        if line.strip() == b'data: [DONE]':
            whole = True
            continue
        event = json.loads(line[6:])
        if 'error' in event:
            return json.dumps(event), True
        usage = event.get('usage') or usage
        for choice in event['choices']:
            add(choices.setdefault(choice['index'], {}), {k: v for k, v in choice.items() if k != 'index'})
    return json.dumps([choices[i] for i in sorted(choices)], sort_keys=True), whole


def ask(address, r, timeout=120, headers=None):
    """Sends a request and waits for what comes of it; an answer that breaks off raises."""
    began = time.monotonic()
    c = connect(address, timeout)
    try:
        c.request('POST', r.path, json.dumps(r.body), {'Content-Type': 'application/json', **(headers or {})})
        if r.cancel_s is not None:
            time.sleep(r.cancel_s)
            return Outcome(None, None, time.monotonic() - began)
        response = c.getresponse()
        data = response.read()
    finally:
        c.close()
    seconds = time.monotonic() - began
    if r.body.get('stream') and response.status == 200:
        answer, whole = joined(data.splitlines())
        assert whole, f'the stream broke off: {r}'
        return Outcome(200, NAMES_THE_CALL.sub('', answer), seconds)
    found = re.search(rb'"cached_tokens": ?(\d+)', data)
    return Outcome(response.status, NAMES_THE_CALL.sub('', data.decode()), seconds, int(found.group(1)) if found else 0)


def run(address, todo, at_once=4, timeout=120, headers=None):
    """Outcomes in the order of the requests, so many of which are under way at a time."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda r: ask(address, r, timeout, headers), todo))


def same(todo, ours, theirs):
    """Every request has the same answer in both; cancelled ones have none."""
    assert len(todo) == len(ours) == len(theirs)
    for r, a, b in zip(todo, ours, theirs):
        if r.cancel_s is not None:
            continue
        assert a.status == b.status == 200, f'{r}: {a.status} {a.answer[:300]} / {b.status} {b.answer[:300]}'
        if a.answer != b.answer:
            at = next((i for i, (x, y) in enumerate(zip(a.answer, b.answer)) if x != y), min(len(a.answer), len(b.answer)))
            raise AssertionError(f'{r} differs at {at}: ...{a.answer[max(0, at - 60):at + 60]!r} / ...{b.answer[max(0, at - 60):at + 60]!r}')


def metrics(address, timeout=30):
    """Values by name, of those without labels of their own summed up otherwise."""
    c = connect(address, timeout)
    c.request('GET', '/metrics')
    out = {}
    for line in c.getresponse().read().decode().split('\n'):
        if line and line[0] != '#':
            name = line.split('{')[0].split(' ')[0]
            out[name] = out.get(name, 0) + float(line.rsplit(' ', 1)[1])
    c.close()
    return out


def consistent(address, seconds=10):
    """Once all that was asked has ended: every block is free, cached or owned, none is owned, and every accepted request ended."""
    end = time.monotonic() + seconds
    while True:
        m = metrics(address)
        blocks = m['quire_kv_blocks_free'] + m['quire_kv_blocks_cached'] + m['quire_kv_blocks_owned']
        if m['quire_requests_inside'] == 0 and m['quire_kv_blocks_owned'] == 0 or time.monotonic() > end:
            break
        time.sleep(0.02)
    assert blocks == m['quire_kv_blocks'], f'{blocks} blocks of {m["quire_kv_blocks"]}'
    assert m['quire_kv_blocks_owned'] == 0 and m['quire_requests_inside'] == 0, (m['quire_kv_blocks_owned'], m['quire_requests_inside'])
    assert m['quire_requests_accepted_total'] == m['vllm:request_success_total'], m
    return m
