#!/usr/bin/env python3
"""A stand-in for `quire serve` behind the page: server/page/page.html as it is on disk, answers that a text in the question chooses, and operators' events that move.

    python3 tools/page_mock.py [--port N]     prints its address; standard library only

It says what a model of one's own may never say: HTML, a javascript: link, 10^5 characters, thinking, calls, an error in the middle. tools/check_page.py runs it.
"""
import argparse
import base64
import hashlib
import http.server
import json
import math
import os
import random
import re
import threading
import time

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'server', 'page', 'page.html')
MARKDOWN = r"""## Paged caches

A sequence's keys and values lie in **blocks** of `16` tokens, so that memory is *given out* as it is ~~needed~~ used. See [the paper](https://example.org/paged) or
https://example.org/a_b(c).

1. A block table maps positions to blocks.
2. Blocks with the same content are **shared**:
   - by hash of what comes before,
   - until one of them is written to.
3. Others wait.

| level | bytes | ns |
|:------|------:|:--:|
| L1 | 32,768 | 1 |
| L2 | 1,048,576 | 4 |

```python
def blocks(n_tokens, size=16):
    return -(-n_tokens // size)  # <b>rounded up</b>
```

> Same request, same bytes.

---

snake_case_name, 2 * 3 * 4, a \*star\*, `code with <tags>`, an unclosed **mark and an ![image](https://example.org/x.png)."""
XSS = """<img src=x onerror="window.hit=1"> <script>window.hit=2</script> [a](javascript:window.hit=3) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) <svg/onload=window.hit=4>
[d](https://example.org/"onmouseover="window.hit=5) `<img src=x onerror=window.hit=6>`

```html"><img src=x onerror=window.hit=7>
<img src=x onerror=window.hit=8>
```

| <img src=x onerror=window.hit=9> | b |
|---|---|
| <iframe src="javascript:window.hit=10"></iframe> | [x](vbscript:1) |

# <img src=x onerror=window.hit=11>"""


def answer(text):
    """Parts of the answer to a question: (kind, text) with kind content, think, call, error or wait."""
    if 'markdown' in text:
        return [('content', p) for p in re.findall(r'(?s).{1,7}', MARKDOWN)]
    if 'xss' in text:
        return [('think', '<img src=x onerror=window.hit=12>')] + [('content', p) for p in re.findall(r'(?s).{1,11}', XSS)]
    if 'long' in text:
        mean = {'stars': '*a ', 'brackets': '[', 'ticks': '`a``', 'lines': 'a\n', 'quotes': '> ', 'word': 'x', 'pipes': '|a'}
        unit = next((u for name, u in mean.items() if name in text), 'word ')
        whole = (unit * 100000)[:100000]
        return [('content', whole[i:i + 2000]) for i in range(0, len(whole), 2000)]
    if 'think' in text:
        return [('think', w + ' ') for w in 'They want to know what a quire is. It is a gathering of leaves of paper, once four sheets folded.'.split()] + \
            [('content', w + ' ') for w in 'A **quire** is a gathering of leaves: four sheets, folded once, make eight.'.split()]
    if 'call' in text:
        return [('content', 'I look it up. '), ('call', '{"city": "Oslo", "days": [1, 2]}')]
    if 'break' in text:
        return [('content', 'This much was '), ('error', 'The request did not finish within --request-timeout.')]
    if 'slow' in text:
        return [part for i in range(400) for part in (('content', 'word%d ' % i), ('wait', .05))]
    return [('content', w + ' ') for w in ('You said: ' + text).split(' ')]


class Ops:
    """Numbers that move as a busy server's do; a function of the time, but for what was cancelled."""
    def __init__(self):
        self.began, self.gone, self.random = time.time(), set(), random.Random(7)
        self.map = self.blocks()

    def blocks(self):
        runs = []
        for _ in range(90):
            runs.append([self.random.randint(4, 60), *self.random.choice([('u', 0), ('u', 1), ('u', 2), ('c', 0), ('c', 3), ('c', 1), ('s',), ('f',), ('f',)])])
        return runs

    def state(self, since):
        now = time.time()
        t = now - self.began
        requests = []
        for i in range(9):
            age = (t * (1 + i % 3) + 11 * i) % 60
            name = 'chatcmpl-%08x' % (0x5f3a91c0 + 7919 * (i + 9 * int((t * (1 + i % 3) + 11 * i) / 60)))
            if name in self.gone:
                continue
            state = 'waiting' if i > 6 else 'prefill' if age < 8 else 'decode'
            requests.append({'id': name, 'route': '/v1/chat/completions' if i % 4 else '/v1/messages', 'who': ['3fa81c02', 'lab', '90bd77e1'][i % 3], 'state': state,
                             'prompt_tokens': 2048 + 97 * i, 'cached_tokens': 512 * (i % 3), 'done_tokens': 0 if i > 6 else min(2048 + 97 * i, int(age * 300)),
                             'output_tokens': max(0, int((age - 8) * 20)) if state == 'decode' else 0, 'max_tokens': 1024, 'choices': 1, 'age_ms': int(age * 1000),
                             'ttft_ms': 840 + 31 * i if state == 'decode' else None, 'blocks': 128 + 6 * i, 'priority': 0})
        first = max(since, now - 8)
        steps = []
        at = math.floor(first / .031) * .031
        while at < now:
            if at > since:
                k = int(at / .031)
                prompt = (k * 37 % 512) if k % 11 < 3 else 0
                steps.append([int(at * 1e6), int(8000 + 1500 * math.sin(k / 9) + prompt * 40), prompt, 4 + k % 3, 2 if k % 40 < 12 else 0])
            at += .031
        cells = sum(r[0] for r in self.map)
        count = {k: sum(r[0] for r in self.map if r[1] == k) * 4 for k in 'fcus'}
        return now, {
            'now_us': int(now * 1e6), 'started_us': int((self.began - 8000) * 1e6), 'version': '0.1.0', 'phase': 'ready',
            'model': {'name': 'mock-8b', 'ctx_max': 8192, 'weights': 'int8', 'kv': 'bf16', 'ranks': 1},
            'limits': {'running_max': 64, 'waiting_max': 512, 'step_tokens_max': 512, 'block_tokens': 16, 'n_blocks': cells * 4, 'n_host_blocks': 0, 'kv_bytes': 3 << 30,
                       'weight_bytes': 8 << 30, 'requests_bytes': 256 << 20, 'connections_max': 4096},
            'use': {'running': sum(r['state'] != 'waiting' for r in requests), 'waiting': sum(r['state'] == 'waiting' for r in requests), 'connections': 17, 'requests_bytes': 3 << 20,
                    'rss_bytes': 12 << 30, 'backlog_ms': 5200},
            'requests': requests, 'requests_left_out': 0,
            'blocks': {'total': cells * 4, 'free': count['f'], 'cached': count['c'], 'used': count['u'], 'shared': count['s'], 'per_cell': 4,
                       'owners': ['3fa81c02', '90bd77e1', '51c0ffee', 'a0b1c2d3'], 'map': self.map},
            'rates': {'prompt_tokens_s': 3800 + 400 * math.sin(t / 3), 'output_tokens_s': 212 + 40 * math.sin(t / 5) + 11 * math.sin(t * 2), 'requests_s': 1.4, 'hit_ratio': .61},
            'ttft_ms': {'le': [10, 25, 50, 100, 250, 500, 1000, 2500, 5000], 'n': [0, 1, 3, 8, 19, 31, 14, 5, 1, 0]},
            'itl_ms': {'le': [1, 2, 5, 10, 20, 50, 100, 200, 500], 'n': [0, 0, 120, 3011, 1209, 240, 18, 2, 0, 0]},
            'steps': steps, 'warnings': [{'id': 'preempting', 'text': 'Sequences gave their blocks back 12 times in the last minute; a larger --kv-bytes would keep them.'}]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def reply(self, body, kind='application/json', status=200, fields=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (('Content-Type', kind), ('Content-Length', str(len(data))), *fields):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self):
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Connection', 'close')
        self.end_headers()
        self.close_connection = True

    def put(self, data, name=''):
        self.wfile.write(((f'event: {name}\n' if name else '') + 'data: ' + (data if isinstance(data, str) else json.dumps(data)) + '\n\n').encode())
        self.wfile.flush()

    def do_GET(self):
        path = self.path.split('?')[0]
        if path == '/':
            with open(PAGE, 'rb') as f:
                page = f.read()
            hashes = [base64.b64encode(hashlib.sha256(re.search(rb'(?s)<%b>(.*?)</%b>' % (tag, tag), page)[1]).digest()).decode() for tag in (b'script', b'style')]
            self.reply(page, 'text/html; charset=utf-8', fields=[('Content-Security-Policy', "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; "
                       "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'" % tuple(hashes))])
        elif path == '/v1/models':
            self.reply({'data': [{'id': 'mock-8b', 'parent': None, 'max_model_len': 8192}, {'id': 'terse', 'parent': 'mock-8b', 'max_model_len': 8192}]})
        elif path == '/v1/ops/events':
            self.stream()
            since = 0
            try:
                while True:
                    since, state = self.server.ops.state(since)
                    self.put(state, 'state')
                    time.sleep(1)
            except OSError:
                pass
        elif path == '/v1/ops/state':
            self.reply(self.server.ops.state(0)[1])
        else:
            self.reply({'error': {'message': f'There is no route {path}.', 'code': 'unknown_route'}}, status=404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        if self.path.endswith('/cancel'):
            name = self.path.split('/')[-2]
            self.server.ops.gone.add(name)
            self.reply({'id': name, 'cancelled': True})
        elif self.path == '/v1/ops/profile':
            time.sleep(body['seconds'] / 5)
            self.reply({'traceEvents': []})
        elif body['messages'][-1]['role'] == 'user' and 'full' in body['messages'][-1]['content']:
            self.reply({'error': {'message': 'The queue is full (512 requests); try again later.', 'code': 'queue_full'}}, status=429, fields=[('Retry-After', '1')])
        else:
            self.chat(body)

    def chat(self, body):
        last = body['messages'][-1]
        parts = answer(last['content']) if last['role'] == 'user' else [('content', 'The tool said: ' + last['content'])]
        self.stream()
        n = 0
        try:
            for kind, text in parts:
                n += 1
                delta = {'content': {'content': text}, 'think': {'reasoning_content': text, 'reasoning': text},
                         'call': {'tool_calls': [{'index': 0, 'id': 'call_1', 'type': 'function', 'function': {'name': 'weather', 'arguments': text}}]}}.get(kind)
                if kind == 'wait':
                    time.sleep(text)
                elif kind == 'error':
                    self.put({'error': {'message': text, 'type': 'timeout', 'param': None, 'code': 'timeout'}})
                    return
                else:
                    choice = {'index': 0, 'delta': delta, 'finish_reason': None, 'logprobs': None}
                    if body.get('logprobs'):
                        p = [.97, .5, .2, .04][n % 4]
                        choice['logprobs'] = {'content': [{'token': text, 'logprob': math.log(p), 'bytes': None, 'top_logprobs': [
                            {'token': t, 'logprob': math.log(q)} for t, q in ((text, p), (' other', .02), ('<b>', .005), ('\n', .001), (' the', .0001))]}]}
                    self.put({'choices': [choice], 'usage': {'prompt_tokens': 40, 'completion_tokens': n, 'prompt_tokens_details': {'cached_tokens': 32}}})
                    time.sleep(self.server.pace)
            self.put({'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'tool_calls' if parts[-1][0] == 'call' else 'stop'}]})
            self.put('[DONE]')
        except OSError:
            self.server.left.set()


class Mock(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0, pace=.01):
        super().__init__(('127.0.0.1', port), Handler)
        self.pace, self.ops, self.left = pace, Ops(), threading.Event()

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *args):
        self.shutdown()
        self.server_close()


if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    p.add_argument('--port', type=int, default=8001)
    with Mock(p.parse_args().port) as mock:
        print(f'http://127.0.0.1:{mock.server_address[1]}/', flush=True)
        threading.Event().wait()
